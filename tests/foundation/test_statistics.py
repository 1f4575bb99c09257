"""Statistics over few runs, against values by hand."""

import math

import numpy as np
import pytest

from rnd.foundation.statistics import (
    bootstrap_interval,
    difference_interval,
    interquartile_mean,
    mean_and_error,
    probability_of_improvement,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("values", "expected"), [([7], 7), ([1, 3], 2), ([0, 1, 5, 100], 3), ([9, 1, 2, 3, -50, 4, 5, 6], 3.5)]
)
def test_interquartile_mean_by_hand(values, expected):
    assert interquartile_mean(np.array(values, float)[:, None]) == pytest.approx(expected)


def test_interquartile_mean_ignores_what_is_missing():
    y = np.array([[0.0, NAN], [1, NAN], [5, NAN], [100, NAN], [NAN, NAN]])
    np.testing.assert_allclose(interquartile_mean(y), [3, NAN])


def test_means_and_standard_errors_by_hand():
    mean, error = mean_and_error(np.array([[1.0, 5, NAN], [3, NAN, NAN]]))
    np.testing.assert_allclose(mean, [2, 5, NAN])
    np.testing.assert_allclose(error, [1, 0, 0])  # sqrt(2) / sqrt(2); a single value; none


def test_the_interval_of_a_difference():
    assert difference_interval(np.full(4, 3.0), np.full(5, 1.0)) == (2, 2)
    low, high = difference_interval(np.arange(20.0), np.arange(20.0))
    assert -8 < low < 0 < high < 8


def test_the_bootstrap_draws_within_tasks():
    """Each task has one value: however runs are drawn within their task, the statistic stays the same."""
    tasks = [np.full(5, 1.0), np.full(5, 3.0)]
    assert bootstrap_interval(tasks, lambda y_RX: y_RX.mean(axis=0)) == (2, 2)
    low, high = bootstrap_interval([np.concatenate(tasks)], lambda y_RX: y_RX.mean(axis=0))
    assert low < 2 < high


def test_the_probability_of_improvement_counts_pairs():
    first, second = np.array([1.0, 2.0]), np.array([0.0, 1.0])
    assert probability_of_improvement([(first, second)]) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert probability_of_improvement([(first, second), (second, second)]) == pytest.approx((0.875 + 0.5) / 2)
