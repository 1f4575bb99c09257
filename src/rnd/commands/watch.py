"""rnd watch RUN_OR_FILE [flags]: an episode as video, with the bonus beside it."""

from __future__ import annotations

from rnd.cli import parse, positional
from rnd.report.options import WatchOptions

DESCRIPTION = (
    "Play a trained agent and write one episode as video, as a strip of frames under the bonus curve (figure 1 of the "
    "paper) and as a table. RUN_OR_FILE is a run folder, a checkpoint, an exported .safetensors file, "
    "or zoo:NAME."
)


def main(arguments: list[str]) -> None:
    target = positional(WatchOptions, arguments, "rnd watch RUN_OR_FILE: name a run folder or an exported agent")
    options = parse(WatchOptions, arguments, prog="rnd watch RUN_OR_FILE", description=DESCRIPTION)

    from rich.console import Console

    from rnd.checkpoint.zoo import locate
    from rnd.foundation.console import say
    from rnd.report.watch import watch

    console = Console()
    for written in watch(locate(target, options.zoo), options, console):
        say(console, f"  {written}")
