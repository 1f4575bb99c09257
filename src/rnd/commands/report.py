"""rnd report RUN... [--out FILE]: one page about one or more runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rnd.cli import parse, positionals
from rnd.foundation.errors import UserError

DESCRIPTION = (
    "Write one self-contained HTML page about runs: curves, maps, videos, config. Seeds of one config become one "
    "curve; different configs are compared, one environment after the other. "
    "RUN is a run folder, or a folder of run folders."
)


@dataclass(frozen=True)
class Options:
    """Flags of `rnd report`."""

    out: str | None = None
    """File of the page; default RUN/report.html, or ./report.html for several runs."""


def main(arguments: list[str]) -> None:
    targets = positionals(Options, arguments)
    options = parse(Options, arguments, prog="rnd report RUN...", description=DESCRIPTION)
    if not targets:
        raise UserError("rnd report RUN...: name run folders, for example: rnd report runs/*")

    from rich.console import Console

    from rnd.foundation.console import say
    from rnd.report.page import write_page
    from rnd.report.runs import expand, read_run

    console = Console()
    paths, empty = expand([Path(target) for target in targets])
    if empty:
        say(console, f"left out, without a run in them: {', '.join(map(str, empty))}")
    default = paths[0] / "report.html" if len(paths) == 1 else Path("report.html")
    out = Path(options.out) if options.out else default
    with console.status("reading") as status:
        runs = [read_run(path) for path in paths]
        write_page(runs, out, lambda stage: status.update(f"drawing {stage}"))
    for run in runs:
        if run.iterations and not run.finished:
            say(console, f"{run.name}: {run.state}")
        for warning in run.warnings:
            say(console, f"warning: {run.name}: {warning}")
    say(console, f"{out.resolve()}")
