"""From the runs of a recipe to its picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rnd.paper.plan import PlannedRun, Scale
from rnd.paper.recipes import SIX_GAMES, TABLE1, Arm, Recipe
from rnd.record.tables import csv_text
from rnd.report.figure import Line, Panel, Picture, draw, new_figure, save
from rnd.report.runs import Run

MEASURES = {"return_mean": "mean episodic return", "rooms": "rooms found"}


def runs_of(arm: Arm, runs: Sequence[PlannedRun]) -> tuple[Run, ...]:
    """The runs of an arm that have data."""
    found = (planned.read() for planned in runs if planned.arm is arm)
    return tuple(run for run in found if run and run.iterations)


def picture_of(recipe: Recipe, runs: Sequence[PlannedRun], scale: Scale) -> Picture:
    """One panel per measure and game or policy."""
    panels, seeds = [], scale.seeds(recipe.seeds)
    for panel in dict.fromkeys(arm.panel for arm in recipe.arms):
        lines = tuple(Line(arm.label, runs_of(arm, runs), seeds) for arm in recipe.arms if arm.panel == panel)
        for measure in recipe.measures:
            references = tuple(score for score in recipe.scores.get(panel, ()) if score.measure == measure)
            title = ", ".join(part for part in (panel, MEASURES[measure] if len(recipe.measures) > 1 else "") if part)
            panels.append(Panel(title or MEASURES[measure], measure, MEASURES[measure], lines, references))
    columns, name = 3 if len(panels) > 4 else 2, picture_name(recipe, scale)
    return Picture(name, recipe.title, tuple(panels), recipe.x, columns, scale.describe(recipe))


def picture_name(recipe: Recipe, scale: Scale) -> str:
    return recipe.name if scale.factor == 1 else f"{recipe.name}-scale-{scale.factor:g}"


def draw_recipe(recipe: Recipe, runs: Sequence[PlannedRun], scale: Scale, folder: Path, *, iqm: bool) -> list[Path]:
    """Draw a figure or table from the runs that exist; returns the paths."""
    if recipe.name == "table1":
        return draw_table(recipe, runs, scale, folder)
    return draw(picture_of(recipe, runs, scale), folder, iqm=iqm)


def final_returns(recipe: Recipe, runs: Sequence[PlannedRun]) -> dict[tuple[str, str], tuple[float, float, int]]:
    """(game, method) to the mean and standard error of the final mean return, and the number of runs."""
    table = {}
    for arm in recipe.arms:
        values = np.array([run.last("return_mean") for run in runs_of(arm, runs)])
        values = values[np.isfinite(values)]
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
        table[arm.panel, arm.label] = (float(values.mean()) if len(values) else math.nan, error, len(values))
    return table


def draw_table(recipe: Recipe, runs: Sequence[PlannedRun], scale: Scale, folder: Path) -> list[Path]:
    """Draw table 1: our final mean returns above the paper's rows."""
    ours = final_returns(recipe, runs)
    methods = list(dict.fromkeys(arm.label for arm in recipe.arms))
    rows = [[f"{method}, here", *(_number(*ours[title, method]) for title in SIX_GAMES.values())] for method in methods]
    rows += [[f"{name}, paper", *(f"{values[game]:,.0f}" for game in SIX_GAMES)] for name, values in TABLE1.items()]
    figure = new_figure(11, 3.6)
    ax = figure.subplots()
    ax.set_axis_off()
    drawn = ax.table(rows, colLabels=["", *SIX_GAMES.values()], loc="center", cellLoc="center")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)
    drawn.scale(1, 1.5)
    for (row, column), cell in drawn.get_celld().items():
        cell.set_linewidth(0.4)
        cell.set_edgecolor("#bbbbbb")
        if 1 <= row <= len(methods):
            cell.set_facecolor("#eef5f9")
        if row == 0 or column == 0:
            cell.set_text_props(fontweight="bold")
    figure.suptitle(recipe.title, fontsize=12, fontweight="bold")
    seeds = scale.seeds(recipe.seeds)
    short = sorted(
        {f"{game}, {method}: {n} of {seeds} seeds" for (game, method), (_, _, n) in ours.items() if n < seeds}
    )
    note = "mean over seeds ± standard error of the last mean return" + "".join(f"; {text}" for text in short[:6])
    note += f"; and {len(short) - 6} more" if len(short) > 6 else ""
    scaled = scale.describe(recipe)
    if scaled:
        note = f"scaled: {scaled}; not the paper's experiment\n{note}"
        figure.text(0.5, 0.5, "SCALED", fontsize=64, alpha=0.07, ha="center", va="center", rotation=12)
    figure.supxlabel(note, fontsize=7.5, color="#555555", wrap=True)
    games = {title: game for game, title in SIX_GAMES.items()}
    table = [(game, method, *values, TABLE1[method][games[game]]) for (game, method), values in ours.items()]
    columns = ("game", "method", "mean", "standard_error", "runs", "paper")
    return save(figure, folder / picture_name(recipe, scale), csv_text(columns, table))


def _number(mean: float, error: float, runs: int) -> str:
    if not runs:
        return "–"
    return f"{mean:,.0f}" + (f" ± {error:,.0f}" if math.isfinite(error) else "")
