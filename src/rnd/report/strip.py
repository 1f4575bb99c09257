"""Figure 1 of the paper: the bonus over an episode with numbered spikes, and the frames at the spikes below it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np

from rnd.foundation.tables import csv_text
from rnd.report.figure import COLOURS, new_figure, save
from rnd.report.options import MAX_SPIKES
from rnd.report.play import PlayedEpisode

MIN_COLUMNS, MAX_COLUMNS = 4, 7
"""Number of frames in a row."""
TITLE = 150
"""Letters of all titles in a row: a wider one would reach into the next, or be cut off at the edge."""


def find_spikes(bonus: np.ndarray, limit: int = MAX_SPIKES) -> list[int]:
    """Indices of the highest local maxima above the median, in order of time. Neighbours keep a distance, so that one
    event is shown once. The bonus of the last step may be unknown (NaN)."""
    bonus = bonus[np.isfinite(bonus)]
    if len(bonus) == 0:
        return []
    apart = max(2, len(bonus) // (3 * limit))
    padded = np.concatenate([[-np.inf], bonus, [-np.inf]])
    peaks = np.flatnonzero((padded[1:-1] > padded[:-2]) & (padded[1:-1] >= padded[2:]) & (bonus > np.median(bonus)))
    chosen: list[int] = []
    for index in peaks[np.argsort(-bonus[peaks], kind="stable")].tolist():
        if len(chosen) == limit:
            break
        if all(abs(index - other) >= apart for other in chosen):
            chosen.append(index)
    return sorted(chosen)


def draw_strip(
    episode: PlayedEpisode, spikes: list[int], frames: dict[int, np.ndarray], stem: Path, title: str, note: str
) -> list[Path]:
    """Write the strip as PNG and SVG and the steps as CSV; returns the paths."""
    columns = min(max(len(spikes), MIN_COLUMNS), MAX_COLUMNS)
    rows = -(-len(spikes) // columns)
    figure = new_figure(11, 3.2 + 2.1 * rows)
    grid = figure.add_gridspec(1 + rows, columns, height_ratios=[1.5, *[1.0] * rows])
    ax = figure.add_subplot(grid[0, :])
    steps, bonus = np.array([step.step for step in episode.steps]), episode.bonus
    ax.plot(steps, bonus, color=COLOURS[0], lw=1.1)
    for number, index in enumerate(spikes, 1):
        ax.plot(steps[index], bonus[index], "o", ms=3.5, color=COLOURS[1])
        point = (float(steps[index]), float(bonus[index]))
        ax.annotate(str(number), point, xytext=(0, 4), textcoords="offset points", ha="center", fontsize=8)
        small = figure.add_subplot(grid[1 + (number - 1) // columns, (number - 1) % columns])
        small.imshow(frames[index])
        small.set(xticks=[], yticks=[])
        words = events_near(episode, index)
        small.set_title(textwrap.fill(f"{number}" + (f": {words}" if words else ""), TITLE // columns), fontsize=7.5)
    ax.set(xlabel="step", ylabel="exploration bonus")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.margins(x=0.01, y=0.14)
    ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    if note:
        figure.supxlabel(note, fontsize=7.5, color="#555555")
    return save(figure, stem, table(episode, spikes))


def events_near(episode: PlayedEpisode, index: int, reach: int = 3) -> str:
    """The events around a spike; the bonus of an event may come a few steps after it."""
    near = episode.steps[max(0, index - reach) : index + reach + 1]
    every = all(step.reward for step in near)  # a reward in every step is no event
    events = dict.fromkeys(event for step in near for event in step.events)
    return ", ".join(event for event in events if not (every and event.startswith("reward ")))


def table(episode: PlayedEpisode, spikes: list[int]) -> str:
    """Every step with its bonus and the number of its spike, as CSV."""
    numbers = {index: number for number, index in enumerate(spikes, 1)}
    rows = [
        (s.step, s.bonus, s.reward, s.score, s.room, s.lives, numbers.get(index, ""), "; ".join(s.events))
        for index, s in enumerate(episode.steps)
    ]
    return csv_text(("step", "bonus", "reward", "return", "place", "lives", "spike", "events"), rows)
