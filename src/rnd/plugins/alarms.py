"""Thresholds with a stated rate of false alarms: split conformal prediction over samples, and over whole episodes.

Episodes as in FAIL-Detect (Xu et al. 2025) and FIPER (Römer et al. 2025): the scores of a window are averaged, and the
threshold may follow the time within the episode. Legend: T steps of an episode.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rnd.foundation.errors import UserError

MIN_WIDTH = 1e-6


def conformal_limit(scores: np.ndarray, rate: float) -> float:
    """The value that a score which is exchangeable with `scores` exceeds with a probability of at most `rate`:
    infinite where `scores` are too few to say so."""
    rank = math.ceil((len(scores) + 1) * (1 - rate) - 1e-9)
    return float(np.sort(scores)[rank - 1]) if rank <= len(scores) else math.inf


@dataclass(frozen=True)
class EpisodeThreshold:
    """An alarm is a mean novelty over `window` steps above center_t + limit * width_t. After the last step that was
    calibrated, the last center and width hold."""

    center: np.ndarray
    width: np.ndarray
    limit: float
    window: int

    @classmethod
    def fit(cls, episodes: list[np.ndarray], rate: float, window: int, varying: bool) -> EpisodeThreshold:
        """From the novelty [T] of normal episodes. `varying`: the first half of the episodes says what is usual at each
        step, and only the second half sets the limit; otherwise all set one limit for all steps."""
        if window < 1 or not 0 < rate < 1 or min(map(len, episodes), default=0) < 1:
            raise UserError("a threshold for episodes needs episodes with steps, window >= 1, and 0 < false_alarms < 1")
        means = [window_means(one, window) for one in episodes]
        usual = cls(np.zeros(1), np.ones(1), 0.0, window)
        if varying:
            first, means = means[: len(means) // 2], means[len(means) // 2 :]
            usual = cls(*moments_over_time(first), 0.0, window)
        limit = conformal_limit(np.array([usual.excess(one).max() for one in means]), rate)
        if math.isinf(limit):
            need = math.ceil(1 / rate) - 1
            raise UserError(
                f"false_alarms={rate} over episodes needs {need * (1 + varying)} episodes, not {len(episodes)}"
                + ("; varying=False needs half of them" if varying else "")
            )
        return cls(usual.center, usual.width, limit, window)

    def excess(self, means: np.ndarray, start: int = 0) -> np.ndarray:
        """By how many widths the means of the steps from `start` on are above the center."""
        step = np.minimum(np.arange(start, start + len(means)), len(self.center) - 1)
        above: np.ndarray = (means - self.center[step]) / self.width[step]
        return above

    def first_alarm(self, novelty: np.ndarray) -> int | None:
        """The step at which an episode with this novelty [T] raises the alarm, or None."""
        steps = np.flatnonzero(self.excess(window_means(novelty, self.window)) > self.limit)
        return int(steps[0]) if len(steps) else None

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)


class EpisodeMonitor:
    """Watches one episode at a time, step by step. `alarm` stays True until `reset`."""

    def __init__(self, threshold: EpisodeThreshold, novelty: Callable[[Any], float]):
        self.threshold, self._novelty = threshold, novelty
        self.reset()

    def reset(self) -> None:
        """A new episode begins."""
        self._recent: deque[float] = deque(maxlen=self.threshold.window)
        self.steps, self.alarm = 0, False

    def step(self, x: Any) -> bool:
        """Whether there was an alarm in this episode until now, x [X] included."""
        self._recent.append(self._novelty(x))
        mean = np.array([sum(self._recent) / len(self._recent)])
        self.alarm |= bool(self.threshold.excess(mean, self.steps)[0] > self.threshold.limit)
        self.steps += 1
        return self.alarm


def window_means(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of each value and of those before it, at most `window` in all."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: np.ndarray = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def moments_over_time(episodes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std per step over the episodes that last so long. Where they are fewer than half of them, the last step
    that more of them reached is the last: few episodes say little about what is usual."""
    if len(episodes) < 2:
        raise UserError(f"varying=True needs 4 episodes or more, not {2 * len(episodes)}; or varying=False")
    longest = int(np.median([len(one) for one in episodes]))
    rows = [[one[t] for one in episodes if len(one) > t] for t in range(longest)]
    return np.array([np.mean(row) for row in rows]), np.maximum([np.std(row) for row in rows], MIN_WIDTH)
