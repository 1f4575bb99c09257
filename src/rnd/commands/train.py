"""rnd train [GAME] [flags]."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rnd.api import starting_config
from rnd.cli import parse, positional, value_of
from rnd.config import Config
from rnd.config.components import resolve
from rnd.config.presets import ATARI_GAMES, DEFAULT_JOB
from rnd.config.ranges import PositiveInt
from rnd.config.recipes import with_recipe
from rnd.foundation.errors import UserError

DESCRIPTION = (
    f"Train an agent. GAME: {', '.join(ATARI_GAMES)}, any ALE/...-v5 or Gymnasium id, or a factory module:function; "
    f"default {DEFAULT_JOB}. The defaults of the flags are those of the game, or of --config."
)
MAX_SEEDS = 1000


@dataclass(frozen=True)
class StartFlags(Config):
    """The config of a run, and what it starts from."""

    config: str | None = None
    """Start from this config.json, or that of this run folder, instead of a game's defaults; every other flag replaces
    a value of it."""
    trust: bool = False
    """With --config: run the code that it names (module:attribute), though you have not trained with it."""
    recipe: str = "paper"
    """Settings for Atari: paper; or efficient, which earns more per frame; or snd, whose target learns too and which is
    the fastest to the first points (docs/recipe.md). Flags replace them."""


@dataclass(frozen=True)
class Flags(StartFlags):
    """Flags of `rnd train`."""

    seeds: str | None = None
    """Several runs that differ in their seed: 1-5, or 1,2,7. A repeated command continues those that were stopped, and
    with more --frames those that are finished."""
    jobs: PositiveInt = 1
    """With --seeds: runs at the same time, each in a process with its share of the cores."""


F = TypeVar("F", bound=StartFlags)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--run-config"] and len(arguments) == 2:  # one job of a scheduler
        from rnd.jobs.process import train

        train(Path(arguments[1]))
        return
    if re.fullmatch(r"\d+([-,]\d+)+", seed := value_of("seed", arguments) or ""):
        raise UserError(f"--seed {seed:.40} names several seeds; nearest: --seeds {seed:.40}")
    flags, config = read_flags(Flags, arguments, "rnd train [GAME]", DESCRIPTION)
    if flags.jobs > 1 and flags.seeds is None:
        raise UserError(f"--jobs {flags.jobs} is for several seeds; add --seeds 1-5")
    if flags.seeds is not None and value_of("seed", arguments) is not None:
        raise UserError(f"--seeds {flags.seeds} names all seeds; leave out --seed {flags.seed}")

    from rich.console import Console

    from rnd import run

    if flags.seeds is None:
        run.start(config, Console())
    else:
        from rnd.jobs.seeds import train_seeds

        train_seeds(config, seeds_of(flags.seeds), flags.jobs, Console())


def read_flags(cls: type[F], arguments: list[str], prog: str, description: str) -> tuple[F, Config]:
    """The flags of a command, and the config that they describe: that of the game or of --config, with the values that
    the flags replace."""
    # The components decide which options exist, and so which flags.
    named = {name: value_of(name, arguments) for name in ("bonus", "policy", "writers")}
    chosen: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    file = value_of("config", arguments)
    if file is not None:
        start = resolve(replace(read_config(Path(file), "--trust" in arguments), **chosen))
        game = start.env.id
        if recipe := value_of("recipe", arguments):
            raise UserError(f"--config {file} has its settings already; leave out --recipe {recipe}")
        if other := positional(flags_of(start, cls), arguments):
            raise UserError(f"--config {file} names its environment, {game}; leave out {other}")
    else:
        game = positional(flags_of(resolve(Config(**chosen)), cls), arguments)
        if named_id := value_of("env.id", arguments):  # the same as GAME: its settings count, not the default job's
            if game:
                raise UserError(f"{game} is the environment already; leave out --env.id {named_id}")
            game = named_id
        game = game or DEFAULT_JOB
        reads: Any = value_of("env.reads", arguments) or "all"
        recipe = value_of("recipe", arguments) or "paper"
        start = resolve(with_recipe(starting_config(game, chosen, reads), recipe, chosen))
        if named_id:
            arguments.append(f"--env.id={start.env.id}")  # the last one counts: short names are written out
    refuse_idle_flags(start, arguments)
    shown = f"{description} Those shown are of {file or game}."
    flags = parse(cls, arguments, prog=prog, description=shown, default=flags_of(start, cls))
    config = Config(**{field.name: getattr(flags, field.name) for field in dataclasses.fields(Config)})
    config.validate()
    return flags, config


def refuse_idle_flags(config: Config, arguments: list[str]) -> None:
    """Refuse flags of Atari, and of worker processes, that would change nothing in this environment."""
    env_id = config.env.id
    idle = [] if env_id.startswith("ALE/") else ["env.sticky", "env.max-episode-frames"]
    for name in [*idle, *(["env.workers"] if env_id.startswith("rnd/") else [])]:
        if value_of(name, arguments) is not None:
            what = "has no worker processes" if name == "env.workers" else "is no Atari game"
            raise UserError(f"--{name} would change nothing: {env_id} {what}; leave it out")


def flags_of(config: Config, cls: type[F]) -> F:
    """The flags of a command whose defaults are the values of a config."""
    return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(config)})


def read_config(path: Path, trusted: bool) -> Config:
    """The config of another run (or of its folder), without its name: the new run gets one of its own."""
    from rnd.checkpoint import trust
    from rnd.checkpoint.folder import nearest_run
    from rnd.foundation.files import read_errors, read_json

    if not path.exists() and (near := nearest_run(path)):
        raise UserError(f"--config {path} does not exist{near}")
    path = path / "config.json" if path.is_dir() else path
    with read_errors(path, "a config"):
        config = Config.from_dict(read_json(path))
    trust.check(config, path, trusted)
    return replace(config, name=None)


def seeds_of(text: str) -> list[int]:
    """1-3 or 1,2,7 as numbers."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,19})(?:-(\d{1,19}))?", part.strip())
        if match is None:
            raise UserError(f"--seeds {text!r:.40} is no list of seeds; write 1-5 or 1,2,7")
        first = int(match[1])
        last = int(match[2] or first)
        if not 0 <= last - first < MAX_SEEDS:
            raise UserError(f"--seeds {text!r:.40}: {part} has to count up, to at most {MAX_SEEDS} seeds")
        found += range(first, last + 1)
    if len(found) != len({*found}):
        raise UserError(f"--seeds {text!r:.40} names a seed twice")
    return found
