"""The four sources of prediction error (section 2.2.1), each measured alone on a small regression.

A predictor learns a random network on points of the plane. What changes from panel to panel is why it stays wrong: too
little data, a stochastic target, missing information or too small a model, or an optimiser that does not get there.

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

from rnd.cli import parse
from rnd.config import positive
from rnd.networks import linear
from rnd.paper.table import table
from rnd.report.figure import new_figure, save

INPUTS, FEATURES, HIDDEN = 2, 16, 64
TEST_POINTS = 2048
NOISE = 0.1
"""Deviation of the noise on a stochastic target."""
EVERY = 20
"""Steps between two measurements."""

Answer = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class PredictionErrors:
    """Four small regressions."""

    out: str = "runs/paper"
    """Folder for the picture and the numbers."""
    seeds: int = 3
    """Seeds a curve."""
    steps: int = 300
    """Optimiser steps a curve."""
    batch: int = 128
    """Points a step."""

    def validate(self) -> None:
        positive(self, "seeds", "steps", "batch")


class Measured(NamedTuple):
    """The error of one predictor at one moment, or after training with n examples."""

    source: str
    curve: str
    seed: int
    x: int
    """Steps, or examples in the panel on the amount of data."""
    error: float


def main(arguments: list[str]) -> None:
    options = parse(PredictionErrors, arguments, prog="rnd paper prediction-errors", description=str(__doc__))
    prediction_errors(options, Console())


def prediction_errors(options: PredictionErrors, console: Console) -> list[Measured]:
    """Measure all four, write prediction-errors.csv, .png and .svg."""
    options.validate()
    rows: list[Measured] = []
    for seed in range(options.seeds):
        for source in (amount_of_data, stochasticity, misspecification, learning_dynamics):
            torch.manual_seed(seed)
            for curve, errors in source(options).items():
                rows += [Measured(source.__name__, curve, seed, x, error) for x, error in errors.items()]
    picture, _, numbers = save(draw(rows), Path(options.out) / "prediction-errors", table(Measured._fields, rows))
    for (source_name, curve), (_, mean, _) in curves(rows).items():
        console.print(f"  {source_name.replace('_', ' ')}, {curve}: {mean[0]:.2g} -> {mean[-1]:.2g}", highlight=False)
    console.print(f"  picture  {picture}\n  numbers  {numbers}", highlight=False, soft_wrap=True)
    return rows


def amount_of_data(options: PredictionErrors) -> dict[str, dict[int, float]]:
    """The same model and optimiser, more and more distinct points."""
    target = network()
    errors = {}
    for examples in (4, 16, 64, 256):
        points = torch.rand(examples, INPUTS) * 2 - 1
        errors[examples] = last(fit(network(), target, options, points=points))
    return {"error on unseen points": errors}


def stochasticity(options: PredictionErrors) -> dict[str, dict[int, float]]:
    """A fresh draw of noise whenever a point is visited: the error cannot fall below its variance."""
    target = network()

    def noisy(x: Tensor) -> Tensor:
        answer: Tensor = target(x)
        return answer + NOISE * torch.randn_like(answer)

    return {
        "stochastic target": fit(network(), noisy, options),
        "deterministic target": fit(network(), target, options),
    }


def misspecification(options: PredictionErrors) -> dict[str, dict[int, float]]:
    """What decides the answer is hidden from the predictor, or the predictor is too simple for it."""
    target = network()
    half_blind = nn.Sequential(Hide(), network())
    return {
        "one input hidden": fit(half_blind, target, options),
        "linear predictor": fit(linear(INPUTS, FEATURES), target, options, lr=1e-2),
        "enough of both": fit(network(), target, options),
    }


def learning_dynamics(options: PredictionErrors) -> dict[str, dict[int, float]]:
    """The target itself is in the model class, so that 0 can be reached; whether it is depends on the optimiser."""
    target, first = network(), network()
    rates = (1e-5, 1e-4, 1e-3)
    return {f"Adam, learning rate {lr:g}": fit(copy.deepcopy(first), target, options, lr=lr) for lr in rates}


def network() -> nn.Module:
    """Target and predictor alike."""
    return nn.Sequential(
        linear(INPUTS, HIDDEN), nn.LeakyReLU(0.2), linear(HIDDEN, HIDDEN), nn.LeakyReLU(0.2), linear(HIDDEN, FEATURES)
    )


class Hide(nn.Module):
    """The second input is not seen."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 0.0])


def fit(
    model: nn.Module, answer: Answer, options: PredictionErrors, *, points: Tensor | None = None, lr: float = 1e-3
) -> dict[int, float]:
    """Train on fresh points, or on the given ones, and measure on others. Steps to error."""
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    test = torch.rand(TEST_POINTS, INPUTS) * 2 - 1
    errors = {}
    for step in range(options.steps + 1):
        if step % EVERY == 0 or step == options.steps:
            with torch.no_grad():
                errors[step] = float((model(test) - answer(test)).square().mean())
        x = torch.rand(options.batch, INPUTS) * 2 - 1
        if points is not None:
            x = points[torch.randint(len(points), (options.batch,))]
        with torch.no_grad():
            y = answer(x)
        adam.zero_grad()
        (model(x) - y).square().mean().backward()
        adam.step()
    return errors


def last(errors: dict[int, float]) -> float:
    return errors[max(errors)]


def curves(rows: list[Measured]) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(source, curve) to (x, mean over seeds, standard error)."""
    found = {}
    for key in dict.fromkeys((row.source, row.curve) for row in rows):
        mine = [row for row in rows if (row.source, row.curve) == key]
        xs = np.array(sorted({row.x for row in mine}))
        values = np.array([[row.error for row in mine if row.x == x] for x in xs])
        spread = values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.zeros(len(xs))
        found[key] = xs, values.mean(axis=1), spread / values.shape[1] ** 0.5
    return found


def draw(rows: list[Measured]) -> Any:
    titles = {
        "amount_of_data": "1 amount of training data",
        "stochasticity": "2 stochasticity",
        "misspecification": "3 model misspecification",
        "learning_dynamics": "4 learning dynamics",
    }
    figure = new_figure(13.0, 3.4)
    panels = dict(zip(titles, figure.subplots(1, 4), strict=True))
    for (source, curve), (x, mean, error) in curves(rows).items():
        panels[source].plot(x, mean, marker="o" if source == "amount_of_data" else None, markersize=3, label=curve)
        panels[source].fill_between(x, np.maximum(mean - error, 1e-9), mean + error, alpha=0.2)
    for source, panel in panels.items():
        panel.set_title(titles[source], fontsize=10)
        panel.set_yscale("log")
        panel.set_xlabel("examples" if source == "amount_of_data" else "optimiser steps")
        panel.legend(fontsize=8)
    panels["amount_of_data"].set_xscale("log")
    panels["amount_of_data"].set_ylabel("mean squared error")
    return figure
