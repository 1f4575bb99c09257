"""The four sources of prediction error (section 2.2.1), each measured alone on a small regression.

A predictor learns the outputs of a random network on points of the plane. Each panel shows one reason for an error that
remains: little data, a stochastic target, missing information or a model that is too small, or the optimiser.

Legend: B points, S steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from rnd.config.ranges import PositiveInt, check_ranges
from rnd.foundation.console import say
from rnd.foundation.tables import csv_text
from rnd.models.networks import linear
from rnd.report.aggregate import Curve, curves_over_seeds
from rnd.report.figure import legend_below, new_figure, save

INPUTS, FEATURES, HIDDEN = 2, 16, 64
TEST_POINTS = 2048
NOISE = 0.1
"""Standard std of the noise on a stochastic target."""
EVERY = 20
"""Steps between two measurements."""

Target = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Options:
    """Four small regressions."""

    out: str = "runs/paper"
    """Folder for the image and the numbers."""
    seeds: PositiveInt = 3
    """Seeds per curve."""
    steps: PositiveInt = 300
    """Optimiser steps per curve."""
    batch: PositiveInt = 128
    """Points per step."""


class Measured(NamedTuple):
    """The error of one predictor after some steps, or after training with n examples."""

    source: str
    curve: str
    seed: int
    x: int
    """Steps, or examples in the panel on the amount of data."""
    error: float


def run(options: Options, console: Console) -> list[Measured]:
    """Measure all four sources, write prediction-errors.csv, .png and .svg, and return the rows."""
    check_ranges(options)
    rows: list[Measured] = []
    for seed in range(options.seeds):
        for source in (amount_of_data, stochasticity, misspecification, learning_dynamics):
            torch.manual_seed(seed)
            for name, errors in source(options).items():
                rows += [Measured(source.__name__, name, seed, x, error) for x, error in errors.items()]
    image, _, numbers = save(draw(rows), Path(options.out) / "prediction-errors", csv_text(Measured._fields, rows))
    for (source_name, name), curve in curves(rows).items():
        say(console, f"  {source_name.replace('_', ' ')}, {name}: {curve.mean[0]:.2g} -> {curve.mean[-1]:.2g}")
    say(console, f"  image  {image}\n  numbers  {numbers}")
    return rows


def amount_of_data(options: Options) -> dict[str, dict[int, float]]:
    """The same model and optimiser with more and more distinct points."""
    target = network()
    errors = {}
    for examples in (4, 16, 64, 256):
        points = torch.rand(examples, INPUTS) * 2 - 1
        errors[examples] = fit(network(), target, options, points=points)[options.steps]
    return {"error on unseen points": errors}


def stochasticity(options: Options) -> dict[str, dict[int, float]]:
    """New noise whenever a point is used: the error cannot fall below the variance of the noise."""
    target = network()

    def noisy(x: Tensor) -> Tensor:
        y: Tensor = target(x)
        return y + NOISE * torch.randn_like(y)

    targets: dict[str, Target] = {"stochastic target": noisy, "deterministic target": target}
    return {name: fit(network(), y, options) for name, y in targets.items()}


def misspecification(options: Options) -> dict[str, dict[int, float]]:
    """An input is hidden from the predictor, or the predictor is too simple for the target."""
    target = network()
    return {
        "one input hidden": fit(nn.Sequential(Hide(), network()), target, options),
        "linear predictor": fit(linear(INPUTS, FEATURES), target, options, lr=1e-2),
        "enough of both": fit(network(), target, options),
    }


def learning_dynamics(options: Options) -> dict[str, dict[int, float]]:
    """The target is in the model class, so an error of 0 is possible; the optimiser decides how near it comes."""
    target, first = network(), network()
    rates = (1e-5, 1e-4, 1e-3)
    return {f"Adam, learning rate {lr:g}": fit(copy.deepcopy(first), target, options, lr=lr) for lr in rates}


def network() -> nn.Module:
    """The architecture of both target and predictor."""
    return nn.Sequential(
        linear(INPUTS, HIDDEN), nn.LeakyReLU(0.2), linear(HIDDEN, HIDDEN), nn.LeakyReLU(0.2), linear(HIDDEN, FEATURES)
    )


class Hide(nn.Module):
    """Sets the second input to zero."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 0.0])


def fit(
    model: nn.Module, target: Target, options: Options, *, points: Tensor | None = None, lr: float = 1e-3
) -> dict[int, float]:
    """Train on new random points, or on `points`; returns step to error on other points."""
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    test = torch.rand(TEST_POINTS, INPUTS) * 2 - 1
    errors = {}
    for step in range(options.steps + 1):
        if step % EVERY == 0 or step == options.steps:
            with torch.no_grad():
                errors[step] = float((model(test) - target(test)).square().mean())
        x = torch.rand(options.batch, INPUTS) * 2 - 1
        if points is not None:
            x = points[torch.randint(len(points), (options.batch,))]
        with torch.no_grad():
            y = target(x)
        adam.zero_grad()
        (model(x) - y).square().mean().backward()
        adam.step()
    return errors


def curves(rows: list[Measured]) -> dict[tuple[str, str], Curve]:
    """Per source and curve the mean error over seeds and its standard error."""
    return curves_over_seeds(((row.source, row.curve), row.x, row.error) for row in rows)


def draw(rows: list[Measured]) -> Any:
    titles = {
        "amount_of_data": "1 amount of training data",
        "stochasticity": "2 stochasticity",
        "misspecification": "3 model misspecification",
        "learning_dynamics": "4 learning dynamics",
    }
    figure = new_figure(13.0, 4.0)
    panels = dict(zip(titles, figure.subplots(1, 4), strict=True))
    for (source, name), curve in curves(rows).items():
        marker = "o" if source == "amount_of_data" else None
        panels[source].plot(curve.x, curve.mean, marker=marker, markersize=3, label=name)
        panels[source].fill_between(curve.x, np.maximum(curve.low, 1e-9), curve.high, alpha=0.2)
    for source, panel in panels.items():
        panel.set_title(titles[source], fontsize=10)
        panel.set_yscale("log")
        panel.set_xlabel("examples" if source == "amount_of_data" else "optimiser steps")
        legend_below(panel)
    panels["amount_of_data"].set_xscale("log")
    panels["amount_of_data"].set_ylabel("mean squared error")
    return figure
