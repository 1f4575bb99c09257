"""rnd train [GAME] [flags]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rnd.cli import parse, positional, value_of
from rnd.components import resolve
from rnd.config import Config
from rnd.envs.factories import kind_of
from rnd.presets import ATARI_GAMES, DEFAULT_JOB, preset

DESCRIPTION = (
    f"Train an agent. GAME: {', '.join(ATARI_GAMES)}, any ALE/...-v5 or Gymnasium id, or a factory module:function; "
    f"default {DEFAULT_JOB}. The defaults shown are those of the game."
)


def main(arguments: list[str]) -> None:
    # The components decide which options exist, and so which flags.
    named = {name: value_of(name, arguments) for name in ("bonus", "policy", "writers")}
    chosen: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    game = positional(resolve(Config(**chosen)), arguments) or DEFAULT_JOB
    policy = chosen.get("policy", "cnn")
    kind = kind_of(game, flatten=policy == "mlp")
    if kind == "image" and policy != "cnn":
        kind = "choices"  # what is tuned for pictures is tuned for the CNN
    start = resolve(replace(preset(game, kind), **chosen))
    config = parse(Config, arguments, prog=f"rnd train {game}", description=DESCRIPTION, default=start)
    config.validate()

    from rich.console import Console

    from rnd import run

    run.start(config, Console())
