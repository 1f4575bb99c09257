"""rnd resume RUN [--frames N]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rnd.cli import parse, positional
from rnd.config.ranges import Frames

DESCRIPTION = "Continue a run exactly from its newest checkpoint. RUN is a run folder."


@dataclass(frozen=True)
class Options:
    """Flags of `rnd resume`."""

    frames: Frames | None = None
    """Frames of the whole run, to make it longer than it was planned."""
    trust: bool = False
    """Run the code that the run names (module:attribute) without a question. `rnd train` remembers what you trained."""


def main(arguments: list[str]) -> None:
    run = positional(Options, arguments, "rnd resume RUN: name the run folder, for example runs/my-run")
    options = parse(Options, arguments, prog="rnd resume RUN", description=DESCRIPTION)

    from rich.console import Console

    from rnd import run as runs

    runs.resume(Path(run), Console(), options.frames, options.trust)
