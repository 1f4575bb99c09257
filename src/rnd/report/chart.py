"""Line charts as inline SVG: one line per group, its interval shaded, its seeds as thin lines behind it.

What is not finished is dashed. The chart contains its numbers as JSON for the tooltip. Without scripts only the tooltip
is missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rnd.foundation.text import count
from rnd.report.aggregate import Curve
from rnd.report.markup import Html, markup

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 34
LOG_SPAN = 100.0
"""A positive measure that spans more than this is drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str
    colour: int
    curve: Curve
    seeds: tuple[Seed, ...] = ()
    unfinished: bool = False


class Seed(NamedTuple):
    """One run behind the mean."""

    x: np.ndarray
    y: np.ndarray
    unfinished: bool = False


class Axes:
    """Maps values to pixels."""

    def __init__(self, series: Sequence[Series]):
        means = np.concatenate([s.curve.mean for s in series])
        y = np.concatenate(
            [means, *(v for s in series for v in (s.curve.low, s.curve.high, *(seed.y for seed in s.seeds)))]
        )
        y = y[np.isfinite(y)]
        self.right = max(float(x.max()) for s in series for x in (s.curve.x, *(seed.x for seed in s.seeds)))
        self.log = bool(means.min() > 0 and means.max() / means.min() > LOG_SPAN)
        if self.log:
            self.low, self.high = math.log10(y[y > 0].min()), math.log10(y.max())
        else:
            self.low, self.high = float(y.min()), float(y.max())
            self.low = 0.0 if 0 <= self.low < 0.6 * self.high else self.low
        size = max(abs(self.low), abs(self.high))
        if self.high - self.low <= 1e-6 * size or size == 0:  # constant up to rounding
            margin = 0.1 * size or 0.5
            self.low, self.high = self.low - margin, self.high + margin

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / max(self.right, 1e-12)

    def y(self, value: float) -> float:
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        share = (value - self.low) / (self.high - self.low)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(share, 0.0), 1.0))

    def y_ticks(self) -> list[float]:
        if self.log:
            powers = [10.0**k for k in range(math.ceil(self.low), math.floor(self.high) + 1)]
            return powers if len(powers) > 1 else [10**self.low, 10**self.high]
        return ticks(self.low, self.high, 4)


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round numbers between two bounds."""
    raw = (high - low) / wanted
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


COLOURS = 24
"""Eight hues in three shades; page.css has them."""


def colour_class(colour: int) -> str:
    return f"s{colour % 8} t{colour % COLOURS // 8}"


def line_chart(title: str, series: Sequence[Series], note: str = "") -> Html:
    """An HTML figure element; empty where there is no data."""
    series = [s for s in series if len(s.curve.x)]
    if not series:
        return Html()
    axes = Axes(series)
    return markup(
        '<figure class="chart"><figcaption>{title}{note}{scale}</figcaption>'
        '<svg viewBox="0 0 {width} {height}" role="img" aria-label="{title}">{grid}{lines}'
        '<line class="cursor" y1="{top}" y2="{bottom}" x1="-9" x2="-9"/></svg><div class="tip" hidden></div>'
        '<script type="application/json">{data}</script></figure>',
        title=title,
        note=markup(" <small>{}</small>", note) if note else "",
        scale=Html(" <small>· log scale</small>") if axes.log else "",
        width=WIDTH,
        height=HEIGHT,
        top=TOP,
        bottom=HEIGHT - BOTTOM,
        grid=_grid(axes),
        lines=[mark for s in series for mark in _line(axes, s)],
        data=_data(axes, series),
    )


def _grid(axes: Axes) -> list[Html]:
    marks = []
    for value in axes.y_ticks():
        y = axes.y(value)
        marks.append(markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>', LEFT, WIDTH - RIGHT, y, y))
        marks.append(markup('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>', LEFT - 7, y + 4, number(value)))
    for value in ticks(0.0, max(axes.right, 1e-9), 4):
        x = axes.x(value)
        anchor = "end" if x > WIDTH - 40 else "middle"
        line = '<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>'
        marks.append(markup(line, x, HEIGHT - 12, anchor, count(value)))
    return marks


def _line(axes: Axes, series: Series) -> list[Html]:
    curve, name = series.curve, colour_class(series.colour)
    line = '<path class="{} {} {}" d="{}"/>'
    marks = [
        markup(line, "seed", name, "open" if seed.unfinished else "", _path(axes, seed.x, seed.y))
        for seed in series.seeds
    ]
    if len(curve.x) > 1 and bool((curve.high > curve.low).any()):
        upper = _points(axes, curve.x, curve.high)
        lower = _points(axes, curve.x, curve.low)[::-1]
        marks.append(markup('<path class="band {}" d="M{}Z"/>', name, "L".join([*upper, *lower])))
    if len(curve.x) == 1:
        point = axes.x(float(curve.x[0])), axes.y(float(curve.mean[0]))
        return [*marks, markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3"/>', name, *point)]
    path = _path(axes, curve.x, curve.mean)
    return [*marks, markup(line, "mean", name, "open" if series.unfinished else "", path)]


def _path(axes: Axes, x: np.ndarray, y: np.ndarray) -> str:
    points = _points(axes, x, y)
    return "M" + "L".join(points) if points else ""


def _points(axes: Axes, x: np.ndarray, y: np.ndarray) -> list[str]:
    known = np.isfinite(y)
    pairs = zip(x[known].tolist(), y[known].tolist(), strict=True)
    return [f"{axes.x(a):.1f},{axes.y(b):.1f}" for a, b in pairs]


def _data(axes: Axes, series: Sequence[Series]) -> Html:
    """The numbers of the tooltip as JSON: pixel, x, value, its error and the number of runs of every series."""
    lines = [
        {
            "label": s.label,
            "colour": colour_class(s.colour),
            "px": [round(axes.x(v), 1) for v in s.curve.x.tolist()],
            "x": s.curve.x.tolist(),
            "y": [float(f"{v:.6g}") for v in s.curve.mean.tolist()],
            "error": [float(f"{v:.3g}") for v in (s.curve.high - s.curve.mean).tolist()],
            "runs": s.curve.runs.tolist(),
        }
        for s in series
    ]
    return Html(json.dumps(lines).replace("<", "\\u003c"))  # a script element ends at its first </


def number(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return count(value) if value > 0 else f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
