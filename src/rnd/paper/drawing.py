"""From the runs of an experiment to its plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnd.foundation.statistics import mean_and_error
from rnd.foundation.tables import csv_text
from rnd.jobs.planned import PlannedRun
from rnd.paper.experiments import SIX_GAMES, TABLE1, Experiment
from rnd.paper.plan import Scale
from rnd.report.figure import Line, Panel, Plot, draw, footer, new_figure, save

MEASURES = {"return_mean": "mean episodic return", "return_best": "best episodic return so far", "rooms": "rooms found"}


def lines_of(experiment: Experiment, runs: Sequence[PlannedRun]) -> list[Line]:
    """Per arm the runs that have data, and how many are planned."""
    lines = []
    for arm in experiment.arms:
        own = [planned for planned in runs if planned.group == arm.name]
        found = tuple(run for planned in own if (run := planned.read()) and run.iterations)
        lines.append(Line(arm.label, found, len(own), arm.panel))
    return lines


def plot_of(experiment: Experiment, runs: Sequence[PlannedRun], scale: Scale) -> Plot:
    """One panel per measure and game or policy."""
    panels, found = [], lines_of(experiment, runs)
    for panel in dict.fromkeys(line.group for line in found):
        lines = tuple(line for line in found if line.group == panel)
        for measure in experiment.measures:
            references = tuple(score for score in experiment.scores.get(panel, ()) if score.measure == measure)
            title = ", ".join(
                text for text in (panel, MEASURES[measure] if len(experiment.measures) > 1 else "") if text
            )
            panels.append(Panel(title or MEASURES[measure], measure, MEASURES[measure], lines, references))
    columns, name = 2 if len(panels) in (2, 4) else 3, image_name(experiment, scale)
    return Plot(name, experiment.title, tuple(panels), experiment.x, columns, scale.describe(experiment))


def image_name(experiment: Experiment, scale: Scale) -> str:
    return experiment.name if scale.factor == 1 else f"{experiment.name}-scale-{scale.factor:g}"


def draw_experiment(
    experiment: Experiment, runs: Sequence[PlannedRun], scale: Scale, folder: Path, *, iqm: bool
) -> list[Path]:
    """Draw a figure or table from the runs that exist; returns the paths."""
    if experiment.name == "table1":
        return draw_table(experiment, runs, scale, folder)
    return draw(plot_of(experiment, runs, scale), folder, iqm=iqm)


def final_returns(lines: Sequence[Line]) -> dict[tuple[str, str], tuple[float, float, int]]:
    """(game, method) to the mean and standard error of the final mean return, and the number of finished runs."""
    table = {}
    for line in lines:
        values = np.array([value for run in line.finished if math.isfinite(value := run.last("return_mean"))])
        mean, error = map(float, mean_and_error(values))
        table[line.group, line.label] = (mean, error if len(values) > 1 else math.nan, len(values))
    return table


def draw_table(experiment: Experiment, runs: Sequence[PlannedRun], scale: Scale, folder: Path) -> list[Path]:
    """Draw table 1: our final mean returns above the paper's rows."""
    lines = lines_of(experiment, runs)
    ours, methods = final_returns(lines), list(dict.fromkeys(line.label for line in lines))
    rows = [[f"{method}, here", *(_number(*ours[title, method]) for title in SIX_GAMES.values())] for method in methods]
    rows += [[f"{name}, paper", *(f"{values[game]:,.0f}" for game in SIX_GAMES)] for name, values in TABLE1.items()]
    statistic = "last mean return: mean over finished seeds ± standard error (–: none, or no episode has ended)"
    note = footer(statistic, scale.describe(experiment), [replace(line, runs=line.finished) for line in lines], 190)
    figure = new_figure(11, 3.6 + 0.15 * note.count("\n"))
    ax = figure.subplots()
    ax.set_axis_off()
    drawn = ax.table(rows, colLabels=["", *SIX_GAMES.values()], loc="center", cellLoc="center")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)
    drawn.scale(1, 1.5)
    for (row, column), cell in drawn.get_celld().items():
        cell.set(linewidth=0.4, edgecolor="#bbbbbb")
        if 1 <= row <= len(methods):
            cell.set_facecolor("#eef5f9")
        if row == 0 or column == 0:
            cell.set_text_props(fontweight="bold")
    figure.suptitle(experiment.title, fontsize=12, fontweight="bold")
    if scale.factor < 1:
        figure.text(0.5, 0.5, "SCALED", fontsize=64, alpha=0.07, ha="center", va="center", rotation=12)
    figure.supxlabel(note, fontsize=7.5, color="#555555")
    games = {title: game for game, title in SIX_GAMES.items()}
    table = [(game, method, *values, TABLE1[method][games[game]]) for (game, method), values in ours.items()]
    columns = ("game", "method", "mean", "standard_error", "runs", "paper")
    return save(figure, folder / image_name(experiment, scale), csv_text(columns, table))


def _number(mean: float, error: float, runs: int) -> str:
    return f"{mean:,.0f}" + (f" ± {error:,.0f}" if math.isfinite(error) else "") if runs else "–"
