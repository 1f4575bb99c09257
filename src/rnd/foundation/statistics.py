"""Statistics over few runs: means with standard errors, interquartile means, bootstrap intervals, probability of
improvement (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice").

Legend: R runs, X columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

RESAMPLES = 2_000
INTERVAL = 0.95


def mean_and_error(y_RX: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of the known values of each column; the error of a single value is 0."""
    known = np.isfinite(y_RX).sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(y_RX, axis=0) / known
    squares = np.nansum((y_RX - mean) ** 2, axis=0)
    return mean, np.sqrt(squares / np.maximum(known - 1, 1) / np.maximum(known, 1))


def interquartile_mean(y_RX: np.ndarray) -> np.ndarray:
    """Mean of the middle half of each column: a quarter of the known values is cut at either end, rounded down."""
    ordered = np.sort(y_RX, axis=0)  # NaN last
    known = np.isfinite(ordered).sum(axis=0)
    cut = known // 4
    rank = np.arange(len(ordered)).reshape(-1, *(1,) * (y_RX.ndim - 1))
    inside = (rank >= cut) & (rank < known - cut)
    total = np.where(inside, ordered, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / inside.sum(axis=0))


def bootstrap_interval(
    tasks: Sequence[np.ndarray], statistic: Callable[[np.ndarray], np.ndarray] = interquartile_mean, seed: int = 0
) -> tuple[float, float]:
    """95% percentile interval of a statistic over the scores of all tasks, one array [R] each.

    Stratified: runs are drawn within their task. `statistic` reduces the first axis of an array [R, X]."""
    return middle(statistic(np.concatenate(resampled(tasks, seed))))


def resampled(tasks: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """RESAMPLES draws with replacement of the scores of each task: [R, RESAMPLES] each."""
    random = np.random.default_rng(seed)
    return [scores[(random.random((len(scores), RESAMPLES)) * len(scores)).astype(int)] for scores in tasks]


def middle(values: np.ndarray) -> tuple[float, float]:
    """The ends of the middle 95%."""
    low, high = np.quantile(values, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2])
    return float(low), float(high)


def probability_of_improvement(tasks: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Mean over tasks of the probability that a run of the first kind scores higher than one of the second; a tie is
    half. One pair of arrays of scores per task."""
    wins = [(np.sign(np.subtract.outer(first, second)) + 1).mean() / 2 for first, second in tasks]
    return float(np.mean(wins))


def mean_interval(scores_R: np.ndarray) -> tuple[float, float]:
    """95% bootstrap interval of the mean."""
    return bootstrap_interval([scores_R], lambda drawn: drawn.mean(axis=0))


def difference_interval(first_R: np.ndarray, second_R: np.ndarray) -> tuple[float, float]:
    """95% bootstrap interval of the difference of two means."""
    first, second = resampled([first_R, second_R], seed=0)
    return middle(first.mean(axis=0) - second.mean(axis=0))
