"""Statistics over few runs: interquartile means, bootstrap intervals, probability of improvement (Agarwal et al. 2021,
"Deep reinforcement learning at the edge of the statistical precipice").

Legend: R runs, X columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

RESAMPLES = 2_000
INTERVAL = 0.95


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
    random = np.random.default_rng(seed)
    drawn = [scores[(random.random((len(scores), RESAMPLES)) * len(scores)).astype(int)] for scores in tasks]
    tails = [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2]
    low, high = np.quantile(statistic(np.concatenate(drawn)), tails)
    return float(low), float(high)


def probability_of_improvement(tasks: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Mean over tasks of the probability that a run of the first kind scores higher than one of the second; a tie is
    half. One pair of arrays of scores per task."""
    wins = [(np.sign(np.subtract.outer(first, second)) + 1).mean() / 2 for first, second in tasks]
    return float(np.mean(wins))
