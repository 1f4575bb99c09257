"""rnd train [GAME] [flags]."""

from __future__ import annotations

from rnd.bonus import check as check_bonus
from rnd.cli import parse, positional
from rnd.config import Config
from rnd.presets import ATARI_GAMES, DEFAULT_JOB, preset

DESCRIPTION = (
    f"Train an agent. GAME: {', '.join(ATARI_GAMES)}, any ALE/...-v5 or Gymnasium id, or a factory module:function; "
    f"default {DEFAULT_JOB}. The defaults shown are those of the game."
)


def main(arguments: list[str]) -> None:
    game = positional(Config, arguments) or DEFAULT_JOB
    config = parse(Config, arguments, prog=f"rnd train {game}", description=DESCRIPTION, default=preset(game))
    config.validate()
    check_bonus(config.bonus)

    from rich.console import Console

    from rnd import run

    run.start(config, Console())
