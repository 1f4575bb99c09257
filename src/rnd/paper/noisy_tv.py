"""The noisy television (sections 2.2.1 and 3.6): the effect of stochastic observations on prediction errors.

The next channel cannot be predicted from the last one and the action. So the forward dynamics error stays high in front
of the television, and the agent stays there. The RND bonus depends on how often an image was seen: it falls.

Legend: T steps, N environments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from rnd import envs
from rnd.config import Config
from rnd.config.presets import preset
from rnd.config.ranges import Frames, PositiveInt, check_ranges
from rnd.data.transitions import Rollout, Transitions, in_chunks
from rnd.envs.noisy_tv import NoisyTV
from rnd.foundation.console import say
from rnd.foundation.tables import csv_text
from rnd.report.aggregate import curves_over_seeds
from rnd.report.figure import new_figure, save
from rnd.training.trainer import Trainer

GAME = "rnd/NoisyTV"
BONUSES = ("dynamics", "rnd")


@dataclass(frozen=True)
class Options:
    """The noisy television with both bonuses."""

    out: str = "runs/paper"
    """Folder for the image and the numbers."""
    seeds: PositiveInt = 5
    """Seeds per bonus."""
    frames: Frames = 200_000
    """Environment steps per run."""


class TvRow(NamedTuple):
    """The measurements of one rollout."""

    bonus: str
    seed: int
    frames: int
    share_at_tv: float
    """Share of the steps that ended in front of the television."""
    bonus_at_tv: float
    """Mean raw bonus of those steps; NaN where there were none."""
    bonus_elsewhere: float


def run(options: Options, console: Console) -> list[TvRow]:
    """Train with both bonuses, write noisy-tv.csv, .png and .svg, and return the rows."""
    check_ranges(options)
    rows: list[TvRow] = []
    with Progress(console=console, transient=True) as bar:
        for name, seed in product(BONUSES, range(1, options.seeds + 1)):
            config = replace(preset(GAME), bonus=name, seed=seed, frames=options.frames, device="cpu")
            task = bar.add_task(f"{name}, seed {seed}", total=config.iterations)
            for row in measure(config):
                rows.append(row)
                bar.advance(task)
            bar.remove_task(task)
            share = last_quarter(rows, name, seed)
            say(console, f"  {name}, seed {seed}: {share:.1%} at the television in the last quarter")
    image, _, numbers = save(draw(rows), Path(options.out) / "noisy-tv", csv_text(TvRow._fields, rows))
    dynamics, distillation = (last_quarter(rows, name) for name in BONUSES)
    ratio = f"dynamics {dynamics:.1%}, rnd {distillation:.1%} ({dynamics / distillation:.1f} times as high)"
    say(console, f"last quarter, share of time at the television: {ratio}\n  image  {image}\n  numbers  {numbers}")
    return rows


def measure(config: Config) -> Iterator[TvRow]:
    """Train a run; yields one row per rollout."""
    with closing(envs.make(config)) as env:
        trainer = TvTrainer(config, env)
        for _ in trainer.random_start():
            pass
        trainer.start()
        for _ in trainer.train():
            yield TvRow(config.bonus, config.seed, trainer.frames, *trainer.measured)


class TvTrainer(Trainer):
    """A trainer that also measures the last rollout at the television."""

    measured: tuple[float, float, float]

    def learn(self, rollout: Rollout) -> dict[str, float]:
        # Before the update: with the networks and statistics that give the bonus of this rollout.
        self.measured = at_tv(rollout.transitions, in_chunks(self.bonus.score, rollout.transitions))
        return super().learn(rollout)


def at_tv(transitions: Transitions, bonus_TN: Tensor) -> tuple[float, float, float]:
    """Share of the steps that ended in front of the television, mean bonus of these and of the other steps."""
    tv_X = torch.from_numpy(NoisyTV(1).tv.reshape(-1))
    cell_TN = transitions.next_obs[..., : len(tv_X)].argmax(-1)
    tv_TN = tv_X[cell_TN]
    return float(tv_TN.float().mean()), float(bonus_TN[tv_TN].mean()), float(bonus_TN[~tv_TN].mean())


def last_quarter(rows: list[TvRow], bonus: str, seed: int | None = None) -> float:
    """Mean share of time at the television in the last quarter of training."""
    mine = [row for row in rows if row.bonus == bonus and seed in (None, row.seed)]
    end = max(row.frames for row in mine)
    return float(np.mean([row.share_at_tv for row in mine if row.frames > 0.75 * end]))


def draw(rows: list[TvRow]) -> Any:
    figure = new_figure(10.0, 4.0)
    left, right = figure.subplots(1, 2)
    shares = curves_over_seeds((row.bonus, row.frames, row.share_at_tv) for row in rows)
    bonuses = curves_over_seeds((row.bonus, row.frames, row.bonus_at_tv) for row in rows)
    for colour, name in zip(("tab:red", "tab:blue"), BONUSES, strict=True):
        for axes, curve in ((left, shares[name]), (right, bonuses[name])):
            first = 1 if axes is left else curve.mean[0]
            axes.plot(curve.x, curve.mean / first, color=colour, label=name)
            axes.fill_between(curve.x, curve.low / first, curve.high / first, color=colour, alpha=0.2)
    left.set(ylabel="share of time in front of the television", ylim=(0, 1))
    right.set(ylabel="bonus there, relative to the first rollout", yscale="log")
    for axes in (left, right):
        axes.set_xlabel("environment steps")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:,.0f} k")
        axes.legend()
    figure.suptitle("The noisy television: mean over seeds, standard error shaded")
    return figure
