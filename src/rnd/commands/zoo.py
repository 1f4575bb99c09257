"""rnd zoo: the trained agents that are here."""

from __future__ import annotations

from dataclasses import dataclass

from rnd.cli import parse

DESCRIPTION = (
    "List the trained agents in results/ (or in the folder that RND_ZOO names), with their scores. "
    "rnd watch zoo:NAME and rnd evaluate zoo:NAME play one; rnd export RUN --card --out results/NAME adds one."
)


@dataclass(frozen=True)
class Options:
    """`rnd zoo` has no flags."""


def main(arguments: list[str]) -> None:
    parse(Options, arguments, prog="rnd zoo", description=DESCRIPTION)

    from rich.console import Console

    from rnd.checkpoint import zoo
    from rnd.foundation.console import say

    console = Console()
    rows = [("name", "mean return", "95%", "frames", "bonus, policy", "environment")]
    for name, agent, evaluation in zoo.entries():
        low, high = evaluation.get("mean_return_interval_95", (None, None))
        rows.append(
            (
                name,
                f"{evaluation['mean_return']:,.1f}" if evaluation else "not evaluated",
                f"{low:,.1f} to {high:,.1f}" if evaluation else "",
                f"{agent.card['frames']:,}",
                f"{agent.config.bonus}, {agent.config.policy}",
                agent.config.env.id,
            )
        )
    if len(rows) == 1:
        say(console, f"{zoo.folder()} has no agents; rnd export RUN --card --out {zoo.folder()}/NAME adds one")
        return
    # Plain lines, whatever the width of the terminal: a name that is cut cannot be typed.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{'>' if at in (1, 2, 3) else '<'}{widths[at]}}" for at, cell in enumerate(row)]
        say(console, "  ".join(cells).rstrip())
