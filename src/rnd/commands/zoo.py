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
    from rich.table import Table

    from rnd.console import say
    from rnd.record import zoo

    console = Console()
    table = Table("name", "environment", "bonus", "policy", box=None)
    for title in ("frames", "mean return", "95%", "in training"):
        table.add_column(title, justify="right")
    for name, agent, evaluation in zoo.entries():
        low, high = evaluation.get("mean_return_interval_95", (None, None))
        table.add_row(
            name,
            agent.config.env.id,
            agent.config.bonus,
            agent.config.policy,
            f"{agent.card['frames']:,}",
            f"{evaluation['mean_return']:,.1f}" if evaluation else "not evaluated",
            f"{low:,.1f} to {high:,.1f}" if evaluation else "",
            f"{agent.card['row']['return_mean']:,.1f}",
        )
    if not table.rows:
        say(console, f"{zoo.folder()} has no agents; rnd export RUN --card --out {zoo.folder()}/NAME adds one")
        return
    console.print(table)
