"""The progress display: a table that redraws itself in a terminal, one line every LINE_EVERY seconds elsewhere."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from rnd.record.metrics import Row

LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal."""


def duration(seconds: float) -> str:
    """1:02:03, or 12 d 3 h from two days on."""
    seconds = max(0.0, seconds)
    if seconds >= 2 * 86400:
        return f"{int(seconds // 86400)} d {int(seconds % 86400 // 3600)} h"
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


def count(value: float) -> str:
    """1,234 or 1.97 G: short and readable."""
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.2f} {letter}"
    return f"{value:,.0f}"


class Phase:
    """A phase of a run with its own bar: `with Phase(console, "random agent", total) as phase: phase.advance(n)`."""

    def __init__(self, console: Console, title: str, total: int, start: int = 0, unit: str = "frames"):
        self.console, self.title, self.total, self.done, self.unit = console, title, total, start, unit
        self._first = start
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[note]}"),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task(title, total=total, completed=start, note="")
        self._details: Any = None
        self._live = Live(self._view(), console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Phase:
        self._begun = self._printed = time.monotonic()
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    @property
    def rate(self) -> float:
        """Frames per second since the phase began."""
        return (self.done - self._first) / max(time.monotonic() - self._begun, 1e-9)

    def advance(self, done: int, row: Row | None = None) -> None:
        """Show that `done` frames of the total are over."""
        self.done = done
        left = (self.total - done) / max(self.rate, 1e-9)
        rate = f"  {count(self.rate)} {self.unit}/s" if self.unit == "frames" else ""
        note = f"{count(done)} / {count(self.total)} {self.unit}{rate}  {duration(left)} left"
        self._bar.update(self._task, completed=done, note=note)
        found = shown(row) if row else []
        self._details = Table.grid(padding=(0, 2)) if row else None
        for i in range(0, len(found), 4):
            self._details.add_row(*(f"[dim]{title}[/dim] {text}" for title, text in found[i : i + 4]))
        if self.console.is_terminal:
            self._live.update(self._view())
        elif time.monotonic() - self._printed >= LINE_EVERY:
            self._printed = time.monotonic()
            measures = "".join(f"  {title} {text}" for title, text in found[:5])
            self.console.print(f"{self.title}: {note}{measures}", highlight=False, soft_wrap=True)

    def _view(self) -> Group:
        return Group(self._bar, self._details) if self._details else Group(self._bar)


SHOWN = (
    ("return_mean", "return (last 100)", "{:,.2f}"),
    ("return_best", "best return", "{:,.2f}"),
    ("success", "success (last 100)", "{:.0%}"),
    ("rooms", "rooms", "{:.0f}"),
    ("episodes", "episodes", "{:,.0f}"),
    ("bonus_raw", "bonus", "{:.4g}"),
    ("policy_loss", "policy loss", "{:.4f}"),
    ("value_ext_loss", "value loss E", "{:.4f}"),
    ("value_int_loss", "value loss I", "{:.4f}"),
    ("bonus_loss", "predictor loss", "{:.4g}"),
    ("entropy", "entropy", "{:.3f}"),
)


def shown(row: Row) -> list[tuple[str, str]]:
    """The measures worth watching, as text; those that have no value yet or no meaning here are left out."""
    values = {name: value for name, value in row.items() if value is not None and (name, value) != ("rooms", 0)}
    return [(title, form.format(values[name])) for name, title, form in SHOWN if name in values]
