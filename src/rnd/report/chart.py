"""Line charts as inline SVG: one line per group, its interval shaded, its seeds as thin lines behind it.

The chart contains its numbers as JSON for the tooltip. Without scripts only the tooltip is missing.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rnd.record.progress import count
from rnd.report.aggregate import Curve

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 34
LOG_SPAN = 100.0
"""A positive measure that spans more than this is drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    label: str
    colour: int
    curve: Curve
    seeds: tuple[tuple[np.ndarray, np.ndarray], ...] = ()


class Axes:
    """Maps values to pixels."""

    def __init__(self, series: Sequence[Series]):
        means = np.concatenate([s.curve.mean for s in series])
        y = np.concatenate([means, *(v for s in series for v in (s.curve.low, s.curve.high, *(y for _, y in s.seeds)))])
        y = y[np.isfinite(y)]
        self.right = max(float(s.curve.x.max()) for s in series)
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


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two bounds."""
    raw = (high - low) / about
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def line_chart(title: str, series: Sequence[Series], note: str = "") -> str:
    """An HTML figure element; empty where there is no data."""
    series = [s for s in series if len(s.curve.x)]
    if not series:
        return ""
    axes = Axes(series)
    parts = [*_grid(axes), *(part for s in series for part in _line(axes, s))]
    label = html.escape(title)
    small = f" <small>{html.escape(note)}</small>" if note else ""
    scale = " <small>log scale</small>" if axes.log else ""
    return (
        f'<figure class="chart"><figcaption>{label}{small}{scale}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}'
        f'<line class="cursor" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="-9" x2="-9"/></svg><div class="tip" hidden></div>'
        f'<script type="application/json">{_data(axes, series)}</script></figure>'
    )


def _grid(axes: Axes) -> list[str]:
    parts = []
    for value in axes.y_ticks():
        y = axes.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>')
    for value in ticks(0.0, max(axes.right, 1e-9), 4):
        x = axes.x(value)
        anchor = "end" if x > WIDTH - 40 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 12}" text-anchor="{anchor}">{count(value)}</text>')
    return parts


def _line(axes: Axes, series: Series) -> list[str]:
    curve, name = series.curve, f"s{series.colour}"
    parts = [f'<path class="seed {name}" d="{_path(axes, x, y)}"/>' for x, y in series.seeds]
    if len(curve.x) > 1 and bool((curve.high > curve.low).any()):
        upper = _points(axes, curve.x, curve.high)
        lower = _points(axes, curve.x, curve.low)[::-1]
        parts.append(f'<path class="band {name}" d="M{"L".join([*upper, *lower])}Z"/>')
    if len(curve.x) == 1:
        x, y = axes.x(float(curve.x[0])), axes.y(float(curve.mean[0]))
        return [*parts, f'<circle class="dot {name}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>']
    return [*parts, f'<path class="mean {name}" d="{_path(axes, curve.x, curve.mean)}"/>']


def _path(axes: Axes, x: np.ndarray, y: np.ndarray) -> str:
    points = _points(axes, x, y)
    return "M" + "L".join(points) if points else ""


def _points(axes: Axes, x: np.ndarray, y: np.ndarray) -> list[str]:
    known = np.isfinite(y)
    pairs = zip(x[known].tolist(), y[known].tolist(), strict=True)
    return [f"{axes.x(a):.1f},{axes.y(b):.1f}" for a, b in pairs]


def _data(axes: Axes, series: Sequence[Series]) -> str:
    """The numbers of the tooltip as JSON: pixel, x and value of every series."""
    lines = [
        {
            "label": s.label,
            "colour": s.colour,
            "px": [round(axes.x(v), 1) for v in s.curve.x.tolist()],
            "x": s.curve.x.tolist(),
            "y": [float(f"{v:.6g}") for v in s.curve.mean.tolist()],
        }
        for s in series
    ]
    return json.dumps(lines).replace("<", "\\u003c")


def number(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return count(value) if value > 0 else f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
