"""Spikes of the bonus: the steps that the strip and the video show."""

from __future__ import annotations

import numpy as np

MAX_SPIKES = 14
"""Default of the largest number of spikes."""


def find_spikes(bonus: np.ndarray, limit: int = MAX_SPIKES) -> list[int]:
    """Indices of the highest local maxima above the median, in order of time. Neighbours keep a distance, so that one
    event is shown once. The bonus of the last step may be unknown (NaN)."""
    bonus = bonus[np.isfinite(bonus)]
    if len(bonus) == 0:
        return []
    apart = max(2, len(bonus) // (3 * limit))
    padded = np.concatenate([[-np.inf], bonus, [-np.inf]])
    peaks = np.flatnonzero((padded[1:-1] > padded[:-2]) & (padded[1:-1] >= padded[2:]) & (bonus > np.median(bonus)))
    chosen: list[int] = []
    for index in peaks[np.argsort(-bonus[peaks], kind="stable")].tolist():
        if len(chosen) == limit:
            break
        if all(abs(index - other) >= apart for other in chosen):
            chosen.append(index)
    return sorted(chosen)
