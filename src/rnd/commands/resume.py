"""rnd resume RUN [--frames N]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rnd.cli import parse, positional
from rnd.config import Config
from rnd.config.ranges import Frames
from rnd.foundation.errors import UserError

DESCRIPTION = "Continue a run exactly from its newest checkpoint. RUN is a run folder."


@dataclass(frozen=True)
class Options:
    """Flags of `rnd resume`."""

    frames: Frames | None = None
    """Frames of the whole run, to make it longer than it was planned."""
    trust: bool = False
    """Run the code that the run names (module:attribute) without a question. `rnd train` remembers what you trained."""


def main(arguments: list[str]) -> None:
    refuse_settings(arguments)
    run = positional(Options, arguments, "rnd resume RUN: name the run folder, for example runs/my-run")
    options = parse(Options, arguments, prog="rnd resume RUN", description=DESCRIPTION)

    from rich.console import Console

    from rnd import run as runs

    runs.resume(Path(run), Console(), options.frames, options.trust)


def refuse_settings(arguments: list[str]) -> None:
    """A run continues as it began."""
    settings = {f"--{name}".replace("_", "-") for name in Config().flat()} - {"--frames"}
    for argument in arguments:
        flag = argument.partition("=")[0].replace("_", "-")
        if flag in settings:
            raise UserError(
                f"a run keeps its settings, so that it continues exactly; leave out {flag}, or start a new run with "
                f"those of RUN and another value: rnd train --config RUN {flag} VALUE"
            )
