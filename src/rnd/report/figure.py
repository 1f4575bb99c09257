"""Curves as in the paper: a statistic over seeds with its interval shaded, the paper's own scores as reference lines.

Every plot is written as PNG, as SVG, and as CSV with the numbers that were drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnd.foundation.files import replacing_by_name, write_atomically
from rnd.foundation.tables import csv_text
from rnd.foundation.text import count
from rnd.report.aggregate import Curve, align, interquartile, mean_and_error
from rnd.report.runs import Run, averaged

COLOURS = ("#0b6e99", "#d1495b", "#2e8b57", "#e09f3e", "#6a4c93", "#7d5a50", "#3d405b", "#c06c84")
"""Most colour-blind readers can distinguish these, in this order."""
STYLES = ("-", ":", "-.")
"""Lines beyond the number of colours take the same colours in the next style; dashed lines are unfinished runs."""
MAX_NAMED = 18
"""Arms without runs that are named under a plot, those of six games and three methods; more are counted."""
LEGEND_ROWS = 6
"""Rows of a legend for which a plot has room; more make it higher."""
INTERQUARTILE_POINTS = 400
"""Number of points with a bootstrap interval; they are evenly spaced and include the last one."""
FAR = 3.0
"""A reference line this many times above all curves is only written at the edge, so that it does not flatten them."""


@dataclass(frozen=True)
class Line:
    """The runs of one arm, and the planned number of seeds."""

    label: str
    runs: tuple[Run, ...]
    seeds: int
    group: str = ""
    """Game or policy, where a plot has several."""

    @property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.finished)

    @property
    def drawn(self) -> tuple[Run, ...]:
        """The finished runs. Where none is finished all runs, and the curve is marked as unfinished."""
        return averaged(self.runs)

    @property
    def legend(self) -> str:
        return self.label if self.finished or not self.runs else f"{self.label}, unfinished"


@dataclass(frozen=True)
class ReferenceLine:
    """A score that the paper states, drawn as a dashed line."""

    value: float
    label: str
    arm: str | None = None
    """Label of the arm that it belongs to; decides the colour."""
    measure: str = "return_mean"
    """Measure of the panels that show it."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    measure: str
    axis: str
    lines: tuple[Line, ...]
    references: tuple[ReferenceLine, ...] = ()


@dataclass(frozen=True)
class Plot:
    """A figure: panels side by side."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    x: str = "frames"
    columns: int = 2
    scaled: str | None = None
    """The sizes, where this is smaller than the paper's experiment; printed on the plot."""


def curve_of(line: Line, measure: str, x: str, iqm: bool) -> Curve:
    """The statistic over the runs of an arm."""
    series = [(run.metrics[x], run.metrics[measure]) for run in line.drawn if measure in run.metrics]
    points, y_RX = align(series)
    if not iqm:
        return mean_and_error(points, y_RX)
    step = -(-len(points) // INTERQUARTILE_POINTS) or 1
    chosen = np.arange(len(points) - 1, -1, -step)[::-1]
    return interquartile(points[chosen], y_RX[:, chosen])


def remarks(line: Line, x: str) -> list[str]:
    """Notes about missing data of an arm, printed under the plot."""
    ends = [float(run.metrics[x][-1]) for run in line.drawn if run.iterations]
    name, done, found = ", ".join(filter(None, (line.group, line.label))), len(line.finished), []
    if done < line.seeds:
        found.append(f"{name}: {done} of {line.seeds} seeds finished")
    if ends and max(ends) > min(ends):
        found.append(f"{name}: seeds end between {count(min(ends))} and {count(max(ends))} {x}")
    return found


def statistic_of(lines: Iterable[Line], iqm: bool) -> str:
    """What a curve of the plot is, and its band."""
    if all(line.seeds == 1 for line in lines):
        return "one run per line"
    return "interquartile mean over seeds, 95% bootstrap interval" if iqm else "mean over seeds, standard error"


def footer(statistic: str, scaled: str | None, lines: Iterable[Line], width: int, x: str = "frames") -> str:
    """The text under a plot: what is drawn, the sizes of a scaled experiment, and what is missing."""
    notes, lines = [f"scaled: {scaled}; not the paper's experiment"] if scaled else [], [*lines]
    empty = {(line.group, line.label) for line in lines if not line.runs}
    if len(empty) > MAX_NAMED:
        notes.append(f"{len(empty)} arms have no run yet")
        lines = [line for line in lines if line.runs]
    notes += dict.fromkeys(remark for line in lines for remark in remarks(line, x))
    return textwrap.fill("; ".join([statistic, *notes]), width)


def draw(plot: Plot, folder: Path, *, iqm: bool = False) -> list[Path]:
    """Write the plot as PNG, SVG and CSV; returns the paths."""
    curves = [[curve_of(line, panel.measure, plot.x, iqm) for line in panel.lines] for panel in plot.panels]
    figure = _figure(plot, curves, iqm)
    return save(figure, folder / plot.name, _csv(plot, curves))


def save(figure: Any, stem: Path, table: str) -> list[Path]:
    """Write a matplotlib figure and its numbers as STEM.png, .svg and .csv; returns the paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(stem.name + ending) for ending in (".png", ".svg", ".csv")]
    with replacing_by_name(*paths[:2]) as (png, svg):
        figure.savefig(png, dpi=130)
        figure.savefig(svg, metadata={"Date": None})
    write_atomically(paths[2], table)
    return paths


def new_figure(width: float, height: float) -> Any:
    """A matplotlib figure without a display and without global state."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "rnd"  # the same plot gives the same file
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def legend_below(ax: Any) -> None:
    """The legend under the axes, where it covers no curve; the layout makes room for it."""
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "borderaxespad": 0}
    columns = 1 if len(ax.get_legend_handles_labels()[1]) <= LEGEND_ROWS else 2
    ax.legend(fontsize=7.5, frameon=False, ncols=columns, **below)


def _figure(plot: Plot, curves: list[list[Curve]], iqm: bool) -> Any:
    columns = min(plot.columns, len(plot.panels))
    rows = -(-len(plot.panels) // columns)
    drawn_lines = max(sum(len(curve.x) > 0 for curve in panel) for panel in curves)
    more = max(0, -(-drawn_lines // 2) - LEGEND_ROWS)
    figure = new_figure(4.8 * columns, (3.5 + 0.16 * more) * rows + 1.0)
    axes = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for ax, panel, drawn in zip(axes, plot.panels, curves, strict=False):
        _panel(ax, panel, drawn, plot.x)
    for ax in axes[len(plot.panels) :]:
        ax.set_visible(False)
    figure.suptitle(plot.title, fontsize=12, fontweight="bold")
    lines = [line for panel in plot.panels for line in panel.lines]
    below = footer(statistic_of(lines, iqm), plot.scaled, lines, 70 * columns, plot.x)
    figure.supxlabel(below, fontsize=7.5, color="#555555")
    if plot.scaled:
        figure.text(0.5, 0.52, "SCALED", fontsize=64, alpha=0.07, ha="center", va="center", rotation=20)
    return figure


def _panel(ax: Any, panel: Panel, curves: list[Curve], x: str) -> None:
    colours = {line.label: COLOURS[i % len(COLOURS)] for i, line in enumerate(panel.lines)}
    for i, (line, curve) in enumerate(zip(panel.lines, curves, strict=True)):
        if not len(curve.x):
            continue
        colour = colours[line.label]
        marker = "o" if len(curve.x) == 1 else None  # a line through one point cannot be seen
        style = STYLES[i // len(COLOURS) % len(STYLES)] if line.legend == line.label else "--"
        ax.plot(curve.x, curve.mean, style, color=colour, lw=1.6, marker=marker, ms=4, label=line.legend)
        ax.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.2, lw=0)
    _reference_lines(ax, panel, curves, colours)
    ax.set_title(panel.title, fontsize=10)
    ax.set(xlabel={"frames": "frames", "updates": "parameter updates"}[x], ylabel=panel.axis)
    ax.xaxis.set_major_formatter(lambda value, _: count(value) if value else "0")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, lw=0.6)
    ax.tick_params(labelsize=8)
    if any(len(curve.x) for curve in curves):
        legend_below(ax)
    else:
        ax.text(0.5, 0.5, "no data yet", transform=ax.transAxes, ha="center", color="#888888")


def _reference_lines(ax: Any, panel: Panel, curves: list[Curve], colours: dict[str, str]) -> None:
    """Dashed lines where they fit; text at the upper edge where they are far above all curves."""
    top = max((float(curve.high.max()) for curve in curves if len(curve.high)), default=0.0)
    far = [line for line in panel.references if line.value > FAR * max(top, 1e-9)]
    for line in panel.references:
        style: dict[str, Any] = {"color": colours.get(line.arm or "", "#444444"), "fontsize": 7, "ha": "right"}
        if line in far:
            height = 0.98 - 0.06 * far.index(line)
            ax.text(0.98, height, f"↑ {line.label} (above this axis)", transform=ax.transAxes, va="top", **style)
        else:
            ax.axhline(line.value, color=style["color"], lw=0.9, ls="--", alpha=0.8)
            ax.text(0.99, line.value, line.label, transform=ax.get_yaxis_transform(), va="bottom", **style)
    ax.margins(y=0.05 + 0.08 * len(far))


def _csv(plot: Plot, curves: list[list[Curve]]) -> str:
    """The drawn numbers, one row per point."""
    rows: list[tuple[Any, ...]] = []
    for panel, lines in zip(plot.panels, curves, strict=True):
        for line, curve in zip(panel.lines, lines, strict=True):
            columns = (curve.x, curve.mean, curve.low, curve.high, curve.runs)
            points = zip(*(column.tolist() for column in columns), strict=True)
            rows += [(panel.title, panel.measure, line.legend, *point) for point in points]
    return csv_text(("panel", "measure", "line", plot.x, "mean", "low", "high", "runs"), rows)
