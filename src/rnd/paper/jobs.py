"""Who runs cells. A scheduler takes cells that are not finished and yields each when it has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rnd.paper.plan import Cell


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    cell: Cell
    problem: str | None = None
    """None: it is finished. Otherwise why it is not, in one line."""


class Scheduler(Protocol):
    """Runs cells somewhere: in processes here, or on a cluster that shares the folder."""

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        """Run them all. A cell that fails does not stop the others."""
        ...
