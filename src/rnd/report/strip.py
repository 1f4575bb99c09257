"""Figure 1 of the paper: the bonus over an episode, its spikes numbered, and the frames at the spikes underneath."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from rnd.report.figure import COLOURS, new_figure, save
from rnd.report.play import Episode

FEWEST, MOST = 4, 7
"""Frames side by side."""


def draw_strip(
    episode: Episode, spikes: list[int], frames: dict[int, np.ndarray], stem: Path, title: str, note: str | None
) -> list[Path]:
    """PNG, SVG and CSV under one name."""
    columns = min(max(len(spikes), FEWEST), MOST)
    rows = -(-len(spikes) // columns)
    figure = new_figure(11, 3.2 + 2.1 * rows)
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=[1.5, *[1.0] * rows])
    ax = figure.add_subplot(grid[0, :])
    steps, bonus = np.array([m.step for m in episode.moments]), episode.bonus
    ax.plot(steps, bonus, color=COLOURS[0], lw=1.1)
    for number, index in enumerate(spikes, 1):
        ax.plot(steps[index], bonus[index], "o", ms=3.5, color=COLOURS[1])
        place = (float(steps[index]), float(bonus[index]))
        ax.annotate(str(number), place, xytext=(0, 4), textcoords="offset points", ha="center", fontsize=8)
    ax.set_xlabel("step")
    ax.set_ylabel("exploration bonus")
    ax.margins(x=0.01, y=0.14)
    ax.spines[["top", "right"]].set_visible(False)
    for number, index in enumerate(spikes, 1):
        small = figure.add_subplot(grid[1 + (number - 1) // columns, (number - 1) % columns])
        small.imshow(frames[index])
        small.set_xticks([])
        small.set_yticks([])
        words = named(episode, index)
        small.set_title(f"{number}" + (f": {words}" if words else ""), fontsize=7.5)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    if note:
        figure.supxlabel(f"scaled: {note}; not the paper's experiment", fontsize=7.5, color="#555555")
    return save(figure, stem, table(episode, spikes))


def named(episode: Episode, index: int, reach: int = 3) -> str:
    """The events around a spike, in words: the bonus of an event may come a few steps after it."""
    near = episode.moments[max(0, index - reach) : index + reach + 1]
    return ", ".join(dict.fromkeys(event for moment in near for event in moment.events))


def table(episode: Episode, spikes: list[int]) -> str:
    """Every step with its bonus; spikes by their number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "bonus", "reward", "return", "place", "lives", "spike", "events"])
    numbers = {index: number for number, index in enumerate(spikes, 1)}
    for index, m in enumerate(episode.moments):
        values = [m.step, repr(m.bonus), repr(m.reward), repr(m.score), m.room, m.lives]
        writer.writerow([*values, numbers.get(index, ""), "; ".join(m.events)])
    return text.getvalue()
