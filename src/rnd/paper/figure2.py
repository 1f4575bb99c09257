"""Figure 2: novelty detection on MNIST (section 2.2).

A predictor learns the outputs of a random network on zeros mixed with n examples of a target class; the total number of
images is fixed. Its error on unseen images of the target class falls with n.

Legend: M models trained together (one for every n), P images of the training set, B images of a batch, X pixels.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Generator, Tensor

from rnd.config.ranges import PositiveFloat, PositiveInt, Width, check_ranges
from rnd.foundation.console import say
from rnd.foundation.errors import UserError
from rnd.foundation.tables import csv_text
from rnd.paper.mnist import Digits, load
from rnd.report.aggregate import Curve, curves_over_seeds
from rnd.report.figure import new_figure, save
from rnd.training.adam import Adam, Group

FAMILIAR = 0
"""The class that stands for states that were seen many times."""


@dataclass(frozen=True)
class Options:
    """Novelty detection on MNIST."""

    data: str | None = None
    """Folder with MNIST's four original .gz files; default: download them."""
    out: str = "runs/paper"
    """Folder for the image and the numbers."""
    seeds: PositiveInt = 10
    """Seeds per curve."""
    classes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9)
    """Target classes; one curve per class."""
    examples: tuple[PositiveInt, ...] = (1, 4, 16, 64, 256, 1024, 4096)
    """Numbers n of target images in the training set; larger numbers than the data has are left out."""
    total: PositiveInt = 5000
    """Images in the training set; fewer where the data has fewer zeros."""
    steps: PositiveInt = 600
    """Adam steps per model."""
    batch: PositiveInt = 64
    """Images per step."""
    hidden: Width = 256
    """Width of the two hidden layers of target and predictor."""
    features: Width = 64
    """Outputs of target and predictor."""
    lr: PositiveFloat = 1e-3
    """Adam's learning rate."""

    def validate(self) -> None:
        """Raise a UserError on options that cannot be used."""
        check_ranges(self)
        if not self.classes or any(c not in range(1, 10) for c in self.classes):
            raise UserError("--classes must be digits from 1 to 9: the zeros are the familiar class")
        if not self.examples:
            raise UserError("--examples is empty; the default is 1 4 16 64 256 1024 4096")


class Point(NamedTuple):
    """The test error of one trained predictor."""

    target_class: int
    examples: int
    seed: int
    mse: float


Layers = list[tuple[Tensor, Tensor]]
"""Weights [M, in, out] and biases [M, 1, out] of M perceptrons."""


def run(options: Options, console: Console) -> list[Point]:
    """Train all predictors, write figure2.csv, .png and .svg, and return the points."""
    options.validate()
    digits = load(Path(options.data) if options.data else None, console)
    say(console, f"{digits.source}: {options.seeds} seeds, classes {options.classes}")
    points: list[Point] = []
    pairs = list(itertools.product(range(options.seeds), options.classes))
    for seed, target_class in track(pairs, "figure 2", console=console, transient=True):
        counts, mses = distil(options, digits, target_class, seed)
        points += [Point(target_class, n, seed, mse) for n, mse in zip(counts, mses, strict=True)]
    table = csv_text(Point._fields, points)
    image, _, numbers = save(draw(points, digits.source), Path(options.out) / "figure2", table)
    say(console, "\n".join([*summary(points), f"  image  {image}", f"  numbers  {numbers}"]))
    return points


def distil(options: Options, digits: Digits, target_class: int, seed: int) -> tuple[list[int], list[float]]:
    """The usable n, and the test error for each of them, of one seed and class.

    The models of a seed share the target, the initial weights, the batches and the images: the n images of the
    target class replace the first n zeros of the training set. So they differ in n alone.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = [digits.train_images.shape[1], options.hidden, options.hidden, options.features]
    layers, target = perceptron(sizes, generator), perceptron(sizes, generator)
    familiar = shuffled(digits.train_labels == FAMILIAR, generator)[: options.total]
    novel = shuffled(digits.train_labels == target_class, generator)
    counts = [n for n in options.examples if n <= min(len(novel), len(familiar))]
    index_MP = torch.stack([torch.cat([novel[:n], familiar[n:]]) for n in counts])
    images_X = torch.from_numpy(digits.train_images)
    models = [(w.repeat(len(counts), 1, 1), b.repeat(len(counts), 1, 1)) for w, b in layers]
    parameters = [p.requires_grad_() for layer in models for p in layer]
    adam = Adam([Group(parameters, options.lr)])
    for indices_B in batches(index_MP.shape[1], options, generator):
        x_MBX = images_X[index_MP[:, indices_B]]
        loss = (forward(models, x_MBX) - forward(target, x_MBX.flatten(0, 1)[None]).view(*x_MBX.shape[:2], -1)).square()
        adam.zero_grad()
        loss.mean((1, 2)).sum().backward()
        adam.step()
    test_1BX = torch.from_numpy(digits.test_images[digits.test_labels == target_class])[None]
    with torch.no_grad():
        error = forward(models, test_1BX.expand(len(counts), -1, -1)) - forward(target, test_1BX)
    return counts, error.square().mean((1, 2)).tolist()


def perceptron(sizes: list[int], generator: Generator) -> Layers:
    """One perceptron with orthogonal weights and zero biases: Layers with M = 1."""
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        weight = torch.empty(inputs, outputs)
        torch.nn.init.orthogonal_(weight, 2**0.5, generator=generator)
        layers.append((weight[None], torch.zeros(1, 1, outputs)))
    return layers


def forward(models: Layers, x_MBX: Tensor) -> Tensor:
    for i, (weight, bias) in enumerate(models):
        x_MBX = torch.baddbmm(bias, x_MBX.relu() if i else x_MBX, weight)
    return x_MBX


def shuffled(mask: np.ndarray, generator: Generator) -> Tensor:
    """The indices where `mask` is true, in random order."""
    indices = torch.from_numpy(np.flatnonzero(mask))
    return indices[torch.randperm(len(indices), generator=generator)]


def batches(images: int, options: Options, generator: Generator) -> list[Tensor]:
    """Indices into the training set: every image once per epoch."""
    epochs = -(-options.steps * options.batch // images)
    order = torch.cat([torch.randperm(images, generator=generator) for _ in range(epochs)])
    return list(order[: options.steps * options.batch].split(options.batch))


def curves(points: list[Point]) -> dict[int, Curve]:
    """Per class the error against n: mean over seeds and standard error."""
    return curves_over_seeds((p.target_class, p.examples, p.mse) for p in sorted(points))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation of two lists without ties."""
    rank_x, rank_y = (np.argsort(np.argsort(values)) for values in (x, y))
    return float(np.corrcoef(rank_x, rank_y)[0, 1])


def summary(points: list[Point]) -> list[str]:
    """One line per class: the errors at the smallest and the largest n, and their rank correlation with n."""
    return [
        f"  class {target_class}: MSE {c.mean[0]:.5f} at n = {c.x[0]}, {c.mean[-1]:.5f} at n = {c.x[-1]} "
        f"({c.mean[-1] / c.mean[0]:.2f}×), Spearman {spearman(c.x, c.mean):+.3f}"
        for target_class, c in curves(points).items()
    ]


def draw(points: list[Point], source: str) -> Any:
    figure = new_figure(6.0, 4.0)
    axes = figure.subplots()
    for target_class, curve in curves(points).items():
        axes.plot(curve.x, curve.mean, marker="o", markersize=3, label=str(target_class))
        axes.fill_between(curve.x, curve.low, curve.high, alpha=0.2)
    axes.set(xscale="log", xlabel="training examples of the target class, n")
    axes.set_ylim(bottom=0)
    axes.set(ylabel="MSE on unseen images of the class", title=f"Novelty detection on {source}")
    axes.legend(title="class", ncols=3)
    return figure
