"""The curves of the agents in results/, a panel per game, with the scores of the paper's table 1.

    python benchmarks/zoo_curves.py [--results results] [--plot results/curves.png]

The line is the mean return of the last 100 episodes of training. Montezuma's Revenge has two panels: the long runs, and
the first 200 million frames of all its agents.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnd.paper.experiments import SIX_GAMES, TABLE1
from rnd.report.figure import Line, Panel, Plot, ReferenceLine, draw
from rnd.report.runs import Run, read_run

POINTS = 300
"""Of a curve."""
BEGINNING = 200_100_000
"""Frames of most runs, and of the second panel of Montezuma's Revenge."""
PAPER = {"RND": "cnn", "PPO": "none"}
"""Rows of table 1 and the agents beside which they are drawn."""
LABELS = {
    "cnn": "RND, CNN",
    "cnn-s3": "RND, CNN, seed 3",
    "cnn-synchronous": "RND, CNN, synchronous",
    "gru": "RND, GRU",
    "snd-v": "SND-V, CNN",
    "none": "no bonus, CNN",
}
"""In the order of the legend; the names of agents are GAME-KIND."""


def thinned(run: Run, last: float) -> Run:
    """The run until a frame, with few points."""
    count = int(np.searchsorted(run.metrics["frames"], last, side="right"))
    chosen = np.unique(np.linspace(0, count - 1, POINTS).round().astype(int))
    return replace(run, metrics={name: column[chosen] for name, column in run.metrics.items()})


def panel(game: str, title: str, results: Path, kinds: Iterable[str] = LABELS, last: float = math.inf) -> Panel:
    lines = {}
    for kind in kinds:
        folder = results / f"{game}-{kind}"
        if folder.is_dir():
            run = thinned(read_run(folder), last)
            if run.config is not None and last < math.inf:  # shown in part, not unfinished
                run = replace(run, config=replace(run.config, frames=1))
            lines[kind] = Line(LABELS[kind], (run,), 1)
    references = tuple(
        ReferenceLine(TABLE1[method][game], f"paper: {method} {TABLE1[method][game]:,}", LABELS[kind])
        for method, kind in PAPER.items()
        if kind in lines and game in TABLE1[method]
    )
    return Panel(title, "return_mean", "mean return, last 100 episodes", tuple(lines.values()), references)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--plot", type=Path, default=Path("results/curves.png"))
    options = parser.parse_args()
    long = "montezuma"
    panels = [
        panel(long, f"{SIX_GAMES[long]}, long runs", options.results, ("cnn", "cnn-s3", "cnn-synchronous")),
        panel(long, f"{SIX_GAMES[long]}, all agents", options.results, last=BEGINNING),
    ]
    others = {**SIX_GAMES, "freeway": "Freeway"}
    panels += [panel(game, title, options.results) for game, title in others.items() if game != long]
    plot = Plot("curves", "Agents in results/, one line per seed", tuple(panels), columns=3)
    with tempfile.TemporaryDirectory() as folder:
        png, _, _ = draw(plot, Path(folder))
        shutil.copyfile(png, options.plot)
    print(options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
