"""Statistics over seeds: one curve from many runs.

Legend: R runs, X points on the horizontal axis.

Runs may have different lengths, and a measure may have no value before the first episode has ended. Every point uses
the runs that have a value there and stores their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rnd.foundation import statistics

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Curve:
    """A statistic over runs with an interval around it."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    runs: np.ndarray
    """Runs that have a value at each point."""


def curves_over_seeds(rows: Iterable[tuple[K, int, float]]) -> dict[K, Curve]:
    """Mean and standard error per curve, from one row (curve, x, value) per seed and x."""
    values: dict[K, dict[int, list[float]]] = {}
    for key, x, value in rows:
        values.setdefault(key, {}).setdefault(x, []).append(value)
    return {key: mean_and_error(np.array([*by_x]), np.array([*by_x.values()]).T) for key, by_x in values.items()}


def align(series: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of every run on the union of their x: [X] and [R, X], NaN where a run has no value."""
    x = np.unique(np.concatenate([s[0] for s in series])) if series else np.empty(0)
    y_RX = np.full((len(series), len(x)), np.nan)
    for row, (own_x, own_y) in zip(y_RX, series, strict=True):
        row[np.searchsorted(x, own_x)] = own_y
    return x, y_RX


def mean_and_error(x: np.ndarray, y_RX: np.ndarray) -> Curve:
    """Mean over runs, plus and minus the standard error (the paper's shading); no error for a single run."""
    runs = np.isfinite(y_RX).sum(axis=0)
    keep = runs > 0
    y_RX, runs = y_RX[:, keep], runs[keep]
    mean, error = statistics.mean_and_error(y_RX)
    return Curve(x[keep], mean, mean - error, mean + error, runs)


def interquartile(x: np.ndarray, y_RX: np.ndarray, seed: int = 0) -> Curve:
    """Interquartile mean over runs with a 95% percentile bootstrap interval."""
    runs = np.isfinite(y_RX).sum(axis=0)
    keep = runs > 0
    y_RX, runs = y_RX[:, keep], runs[keep]
    known = [column[np.isfinite(column)] for column in y_RX.T]
    low, high = np.array([statistics.bootstrap_interval([values], seed=seed) for values in known]).reshape(-1, 2).T
    return Curve(x[keep], statistics.interquartile_mean(y_RX), low, high, runs)


def thin(curve: Curve, points: int) -> Curve:
    """At most `points` points: the means of equal blocks. It keeps a page small."""
    size = -(-len(curve.x) // points) if points else 1
    if size <= 1:
        return curve
    starts = np.arange(0, len(curve.x), size)
    counts = np.diff([*starts, len(curve.x)])

    def blocks(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.add.reduceat(values, starts) / counts)

    runs = np.minimum.reduceat(curve.runs, starts)
    return Curve(blocks(curve.x), blocks(curve.mean), blocks(curve.low), blocks(curve.high), runs)
