"""Statistics over seeds against numpy and against numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnd.report.aggregate import align, curves_over_seeds, interquartile, mean_and_error, thin

NAN = float("nan")


def test_runs_of_different_lengths_are_put_on_the_union_of_their_points():
    x, y = align([(np.array([1.0, 2, 3]), np.array([10.0, 20, 30])), (np.array([2.0, 4]), np.array([5.0, 6]))])
    np.testing.assert_array_equal(x, [1, 2, 3, 4])
    np.testing.assert_array_equal(y, [[10, 20, 30, NAN], [NAN, 5, NAN, 6]])


def test_mean_and_standard_error_are_numpys():
    y = np.random.default_rng(0).normal(size=(5, 7))
    curve = mean_and_error(np.arange(7.0), y)
    error = y.std(axis=0, ddof=1) / np.sqrt(5)
    np.testing.assert_allclose(curve.mean, y.mean(axis=0))
    np.testing.assert_allclose(curve.low, y.mean(axis=0) - error)
    np.testing.assert_allclose(curve.high, y.mean(axis=0) + error)


def test_missing_values_leave_the_other_runs():
    y = np.array([[NAN, 1.0, 2.0, 3.0], [NAN, NAN, 4.0, NAN], [NAN, NAN, 9.0, NAN]])
    curve = mean_and_error(np.arange(4.0), y)
    np.testing.assert_array_equal(curve.x, [1, 2, 3])  # nobody has a value at the first point
    np.testing.assert_array_equal(curve.runs, [1, 3, 1])
    np.testing.assert_allclose(curve.mean, [1, 5, 3])
    error = np.std([2, 4, 9], ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(curve.high - curve.mean, [0, error, 0])  # one run has no error


def test_the_error_of_a_curve_counts_only_the_seeds_that_have_a_value():
    rows = [("a", x, value) for x, values in {0: [1.0, NAN, 3.0], 10: [2.0, 4.0, 9.0]}.items() for value in values]
    curve = curves_over_seeds(rows)["a"]
    np.testing.assert_array_equal(curve.runs, [2, 3])
    np.testing.assert_allclose(curve.mean, [2, 5])
    np.testing.assert_allclose(curve.high - curve.mean, [1, np.std([2, 4, 9], ddof=1) / np.sqrt(3)])


def test_no_runs_give_an_empty_curve():
    for curve in (mean_and_error(*align([])), interquartile(*align([]))):
        assert len(curve.x) == len(curve.mean) == 0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9))
def test_the_interval_holds_the_statistic_of_equal_values_and_stays_within_the_data(values):
    curve = interquartile(np.zeros(1), np.array(values)[:, None])
    assert min(values) - 1e-9 <= curve.low[0] <= curve.high[0] <= max(values) + 1e-9


def test_the_bootstrap_interval_of_normal_data_has_the_known_width():
    """The middle half's mean of n normal values varies by about 1.10 / sqrt(n)."""
    y = np.random.default_rng(1).normal(size=(400, 1))
    curve = interquartile(np.zeros(1), y)
    width = float(curve.high[0] - curve.low[0])
    assert width == pytest.approx(2 * 1.96 * 1.10 / np.sqrt(400), rel=0.15)


def test_thinning_averages_blocks():
    curve = thin(mean_and_error(np.arange(10.0), np.arange(10.0)[None]), 4)
    np.testing.assert_allclose(curve.x, [1, 4, 7, 9])
    np.testing.assert_allclose(curve.mean, curve.x)
