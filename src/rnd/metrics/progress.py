"""The progress display: a table that redraws itself in a terminal, one line every LINE_EVERY seconds elsewhere."""

from __future__ import annotations

import bisect
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from rnd.foundation.text import count, duration, significant
from rnd.metrics.metrics import Row

RECENT = 30.0
"""Seconds over which the speed is measured: it drifts, and the first iterations compile."""
LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal."""


class Phase:
    """A phase of a run with its own bar: `with Phase(console, "random agent", total) as phase: phase.advance(n)`."""

    def __init__(self, console: Console, title: str, total: int, start: int = 0, unit: str = "frames"):
        self.console, self.title, self.total, self.done, self.unit = console, title, total, start, unit
        self.warming_up = ""
        """What is shown instead of speed and time left while they would mislead, for example "compiling"."""
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), start)])
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
        self.restart()
        self._printed = time.monotonic()
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def restart(self) -> None:
        """Measure the speed from here on."""
        self.warming_up = ""
        self._recent = deque([(time.monotonic(), self.done)])

    @property
    def rate(self) -> float:
        """Frames per second of the last 30 seconds."""
        (then, before), (now, done) = self._recent[0], self._recent[-1]
        return (done - before) / max(now - then, 1e-9)

    @property
    def measured_seconds(self) -> float:
        """Seconds over which `rate` is measured."""
        return self._recent[-1][0] - self._recent[0][0]

    def advance(self, done: int, row: Row | None = None, trend: Trend | None = None) -> None:
        """Show that `done` frames of the total are over."""
        self.done = done
        self._recent.append((time.monotonic(), done))
        while self._recent[-1][0] - self._recent[1][0] >= RECENT:
            self._recent.popleft()
        left = (self.total - done) / max(self.rate, 1e-9)
        rate = f"  {count(self.rate)} {self.unit}/s" if self.unit == "frames" else ""
        speed = f"  {self.warming_up}" if self.warming_up else f"{rate}  {duration(left)} left"
        note = f"{count(done)} / {count(self.total)} {self.unit}{speed}"
        self._bar.update(self._task, completed=done, note=note)
        values = shown(row) if row else []
        titles = [title for _, title, _ in FIRST]
        first = [*(pair for pair in values if pair[0] in titles), *(trend.texts() if trend else [])]
        found = [*first, *(pair for pair in values if pair[0] not in titles)]
        self._details = grid(found, self.console.width) if row else None
        if self.console.is_terminal:
            self._live.update(self._view())
        elif time.monotonic() - self._printed >= LINE_EVERY:
            self._printed = time.monotonic()
            measures = "".join(f"  {title} {text}" for title, text in first)
            self.console.print(f"{self.title}: {note}{measures}", highlight=False, soft_wrap=True)

    def _view(self) -> Group:
        return Group(self._bar, self._details) if self._details else Group(self._bar)


def grid(pairs: list[tuple[str, str]], width: int) -> Table:
    """Titles and values in as many columns, at most four, as fit without a line break in a cell."""
    lengths = [len(f"{title} {text}") for title, text in pairs]
    columns = 4
    while columns > 1 and sum(max(lengths[i::columns], default=0) + 2 for i in range(columns)) - 2 > width:
        columns -= 1
    table = Table.grid(padding=(0, 2))
    for i in range(0, len(pairs), columns):
        table.add_row(*(f"[dim]{title}[/dim] {text}" for title, text in pairs[i : i + columns]))
    return table


FIRST: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("return_mean", "return (last 100)", significant),
    ("return_best", "best return", significant),
    ("success", "success (last 100)", "{:.0%}".format),
    ("rooms", "rooms", "{:.0f}".format),
    ("episodes", "episodes", "{:,.0f}".format),
    ("entropy", "entropy", "{:.3f}".format),
)
"""Column, title and text of the measures that are also in piped logs."""
SHOWN = (
    *FIRST,
    ("bonus_raw", "bonus", "{:.4g}".format),
    ("bonus_spread", "bonus spread", "{:.2f}".format),
    ("bonus_share", "bonus share", "{:.1%}".format),
    ("policy_loss", "policy loss", "{:.4f}".format),
    ("value_ext_loss", "value loss E", "{:.4f}".format),
    ("value_int_loss", "value loss I", "{:.4f}".format),
    ("bonus_loss", "predictor loss", "{:.4g}".format),
)


def shown(row: Row) -> list[tuple[str, str]]:
    """The measures worth watching, as text; those that have no value yet or no meaning here are left out."""
    values = {name: value for name, value in row.items() if value is not None and (name, value) != ("rooms", 0)}
    return [(title, form(values[name])) for name, title, form in SHOWN if name in values]


class Trend:
    """Whether a run still explores: when rooms and the best return last rose, and where the mean return went lately."""

    RISING = (("rooms", "newest room"), ("return_best", "newest best"))

    def __init__(self, columns: Mapping[str, Any]):
        """From the metrics so far; `add` continues them."""
        self.frames: list[float] = []
        self.means: list[float] = []
        self.highest: dict[str, tuple[float, float]] = {}
        """Column to its highest value and the frames at which it was reached."""
        for values in zip(*columns.values(), strict=False):
            self.add(dict(zip(columns, values, strict=True)))

    def add(self, row: Row) -> None:
        frames, mean = row.get("frames"), row.get("return_mean")
        if frames is None or mean is None or math.isnan(mean):  # no episode has ended yet
            return
        self.frames.append(frames)
        self.means.append(mean)
        for name, _ in self.RISING:
            value = row.get(name)
            if value and value > self.highest.get(name, (-math.inf, 0))[0]:
                self.highest[name] = value, frames

    def texts(self) -> list[tuple[str, str]]:
        """Titles and values; none before the first episode has ended."""
        if not self.frames:
            return []
        now = self.frames[-1]
        tenth = min(bisect.bisect_left(self.frames, 0.9 * now), len(self.frames) - 1)  # a damaged file may count down
        rose = [(title, self.highest[name][1]) for name, title in self.RISING if name in self.highest]
        found = [(title, f"{count(now - frames)} frames ago") for title, frames in rose]
        if now > self.frames[tenth]:
            before = significant(self.means[tenth])
            found.append(("return earlier", f"{before} ({count(now - self.frames[tenth])} frames ago)"))
        return found
