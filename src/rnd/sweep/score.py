"""The score of a run: one number from its metrics, also while it trains."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from rnd.jobs.planned import PlannedRun
from rnd.metrics.metrics import read_csv

Measure = Literal["return_mean", "success", "return_best", "rooms", "places"]
"""Columns of the metrics of which more is better."""
TITLES: dict[Measure, str] = {"return_mean": "return", "return_best": "best return"}
"""Those whose name is not what people call them."""


def metrics_of(planned: PlannedRun) -> dict[str, np.ndarray]:
    """The metrics of a run so far; empty where they cannot be read."""
    try:
        return {name: np.asarray(values) for name, values in read_csv(planned.path / "metrics.csv").items()}
    except (OSError, ValueError):
        return {}


def score(columns: dict[str, np.ndarray], measure: str, frames: float) -> float:
    """Mean of a measure over the second half of the first `frames` frames: what is learned early counts, and a lucky
    end does not. NaN where there is none."""
    at, values = (columns.get(name, np.empty(0)) for name in ("frames", measure))
    known = values[(at > frames / 2) & (at <= frames) & np.isfinite(values)] if len(at) == len(values) else at[:0]
    return float(known.mean()) if len(known) else math.nan
