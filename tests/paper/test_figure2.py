"""Figure 2 on MNIST, where its files are beside the repository, and on small generated images."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from rnd.foundation.errors import UserError
from rnd.paper import figure2, mnist
from rnd.paper.figure2 import Options, Point

MNIST = Path(os.environ.get("RND_MNIST", Path(__file__).parents[3] / "shared" / "mnist"))
SHORT = Options(seeds=2, classes=(1, 3), examples=(1, 30, 900), total=1000, steps=150, batch=32, hidden=64, features=16)


@pytest.fixture
def prototypes() -> mnist.Digits:
    """Ten classes of 8×8 images: one prototype per class, with noise."""
    random = np.random.default_rng(0)
    means = random.random((10, 64))
    labels = np.tile(np.arange(10), 130)
    images = (means[labels] + 0.1 * random.standard_normal((1300, 64))).astype(np.float32)
    return mnist.Digits(images[:1000], labels[:1000], images[1000:], labels[1000:], "prototypes")


@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is not here; RND_MNIST=DIR names its folder")
def test_the_error_falls_with_the_examples_on_mnist(tmp_path):
    points = figure2.run(replace(SHORT, data=str(MNIST), out=str(tmp_path)), Console(quiet=True))
    for curve in figure2.curves(points).values():
        assert list(curve.x) == [1, 30, 900]
        assert figure2.spearman(np.log(curve.x), curve.mean) == pytest.approx(-1.0)
        assert curve.mean[-1] <= curve.mean[0] * 0.75
    with (tmp_path / "figure2.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(points) == 2 * 2 * 3
    assert float(table[0]["mse"]) == points[0].mse
    assert (tmp_path / "figure2.png").stat().st_size > 10_000
    assert "Novelty detection on MNIST" in (tmp_path / "figure2.svg").read_text()


def test_the_same_seed_gives_the_same_points(prototypes):
    options = replace(SHORT, examples=(1, 20, 60), steps=30)
    one, two = (figure2.distil(options, prototypes, 3, seed=1) for _ in range(2))
    assert one == two
    assert figure2.distil(options, prototypes, 3, seed=2) != one
    assert one[0] == [1, 20, 60]


def test_more_examples_than_the_data_has_are_left_out(prototypes):
    assert figure2.distil(replace(SHORT, steps=2), prototypes, 3, seed=1)[0] == [1, 30]


def test_models_trained_together_equal_one_model_alone():
    """M perceptrons against torch's own layers."""
    layers = figure2.perceptron([5, 7, 3], torch.Generator().manual_seed(0))
    alone = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    for module, (weight, bias) in zip(alone[::2], layers, strict=True):
        module.weight.data, module.bias.data = weight[0].T.contiguous(), bias[0, 0]
    x = torch.randn(4, 5)
    stacked = [(w.repeat(2, 1, 1), b.repeat(2, 1, 1)) for w, b in layers]
    out = figure2.forward(stacked, x.expand(2, -1, -1))
    torch.testing.assert_close(out, alone(x).expand(2, -1, -1))


def test_an_epoch_shows_every_image_once():
    options = replace(SHORT, steps=10, batch=20)
    indices = torch.cat(list(figure2.batches(100, options, torch.Generator().manual_seed(0))))
    assert indices.bincount().tolist() == [2] * 100


def test_curves_and_rank_correlation_by_hand():
    points = [Point(1, n, seed, n * 1.0 + seed) for n in (1, 2, 4) for seed in (0, 2)]
    curve = figure2.curves(points)[1]
    assert curve.x.tolist() == [1, 2, 4]
    assert curve.mean.tolist() == [2.0, 3.0, 5.0]
    assert (curve.high - curve.mean).tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert figure2.spearman(curve.x, curve.mean) == pytest.approx(1.0)
    assert figure2.spearman(np.array([1, 2, 3, 4]), np.array([4.0, 3.0, 1.0, 2.0])) == pytest.approx(-0.8)


def test_wrong_options_are_refused():
    with pytest.raises(UserError, match="digits from 1 to 9"):
        replace(SHORT, classes=(0,)).validate()
    with pytest.raises(UserError, match="--seeds must be"):
        replace(SHORT, seeds=0).validate()
