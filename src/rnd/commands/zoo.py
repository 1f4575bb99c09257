"""rnd zoo: the trained agents that there are, and where."""

from __future__ import annotations

from dataclasses import dataclass

from rnd.cli import parse

DESCRIPTION = (
    "List the trained agents with their scores: those of the index that comes with rnd, and those of the zoo's folder. "
    "rnd watch zoo:NAME and rnd evaluate zoo:NAME play one; rnd export RUN --card --out results/NAME adds one."
)


@dataclass(frozen=True)
class Options:
    """Flags of `rnd zoo`."""

    zoo: str | None = None
    """Folder or http(s) address of the agents; default $RND_ZOO, or results/ here or in the checkout."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, prog="rnd zoo", description=DESCRIPTION)

    from rich.console import Console

    from rnd.checkpoint import zoo
    from rnd.foundation.console import say
    from rnd.foundation.text import significant

    console, where = Console(), zoo.source(options.zoo)
    agents = [*zoo.listed(where)]
    rows = [("name", "mean return", "95%", "frames", "size", "bonus, policy", "environment", "where")]
    for name, entry, place in agents:
        if entry is None:
            continue
        low, high = entry.interval_95 or (0.0, 0.0)
        rows.append(
            (
                name,
                "not evaluated" if entry.score is None else significant(entry.score),
                f"{significant(low)} to {significant(high)}" if entry.interval_95 else "",
                f"{entry.frames:,}",
                f"{entry.size / 1e6:.1f} MB",
                f"{entry.bonus}, {entry.policy}" + ("" if entry.has_bonus else " (policy alone)"),
                entry.game,
                place,
            )
        )
    # Plain lines, whatever the width of the terminal: a name that is cut cannot be typed.
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{'>' if at in (1, 2, 3, 4) else '<'}{widths[at]}}" for at, cell in enumerate(row)]
        say(console, "  ".join(cells).rstrip())
    for name, entry, problem in agents:
        if entry is None:
            say(console, f"{name} is not listed: {problem}")
    if any(place == "not here" for _, _, place in agents):
        say(console, f"to play those that are not here, {zoo.advice()}")
