"""Each of the four sources of error alone, against its known size."""

from __future__ import annotations

import pytest
import torch
from rich.console import Console

from rnd.paper import prediction_errors as four
from rnd.paper.prediction_errors import Options

SHORT = Options(seeds=1, steps=300, batch=64)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def end(errors):
    return errors[max(errors)]


def test_more_data_less_error():
    (errors,) = four.amount_of_data(SHORT).values()
    values = list(errors.values())
    assert values == sorted(values, reverse=True)
    assert values[0] > 10 * values[-1]


def test_noise_leaves_its_variance():
    errors = four.stochasticity(SHORT)
    assert end(errors["stochastic target"]) == pytest.approx(four.NOISE**2, rel=0.15)
    assert end(errors["deterministic target"]) < four.NOISE**2 / 10


def test_missing_information_and_a_small_model_leave_an_error():
    errors = four.misspecification(SHORT)
    enough = end(errors["enough of both"])
    assert end(errors["one input hidden"]) > 10 * enough
    assert end(errors["linear predictor"]) > 3 * enough


def test_the_optimiser_decides_what_is_reached():
    errors = four.learning_dynamics(SHORT)
    slow, middle, fast = (end(curve) for curve in errors.values())
    assert slow > middle > 3 * fast
    first = [curve[0] for curve in errors.values()]
    assert first == pytest.approx([first[0]] * 3, rel=0.1), "all start from the same predictor, on other test points"


def test_no_legend_covers_a_curve():
    sources = ("amount_of_data", "stochasticity", "misspecification", "learning_dynamics")
    figure = four.draw([four.Measured(source, "curve", 0, x, 0.1) for source in sources for x in (10, 20)])
    figure.canvas.draw()
    for ax in figure.axes:
        assert ax.get_legend().get_window_extent().y1 <= ax.get_window_extent().y0


def test_image_and_numbers_are_written(tmp_path):
    options = Options(out=str(tmp_path), seeds=1, steps=20)
    rows = four.run(options, Console(quiet=True))
    assert len((tmp_path / "prediction-errors.csv").read_text().splitlines()) == 1 + len(rows)
    assert (tmp_path / "prediction-errors.svg").exists()
    assert (tmp_path / "prediction-errors.png").stat().st_size > 10_000
