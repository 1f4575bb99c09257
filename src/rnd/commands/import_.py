"""rnd import FOLDER [flags]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rnd.cli import parse, positional
from rnd.config import Config
from rnd.foundation.console import printable

DESCRIPTION = "Join a checkpoint that `rnd export RUN --max-part` has split. FOLDER holds parts.json and the parts."


@dataclass(frozen=True)
class Options:
    """Flags of `rnd import`."""

    out: str = Config.out
    """Folder that holds run folders."""
    name: str | None = None
    """Name of the run folder; default: the name that it had."""


def main(arguments: list[str]) -> None:
    folder = positional(Options, arguments, "rnd import FOLDER: name the folder that holds parts.json")
    options = parse(Options, arguments, prog="rnd import FOLDER", description=DESCRIPTION)

    from rnd.checkpoint.parts import import_parts

    run = import_parts(Path(folder), Path(options.out), options.name)
    print(printable(f"run folder: {run.path}; to continue: rnd resume {run.path}"))
