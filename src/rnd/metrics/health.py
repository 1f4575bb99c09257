"""Whether a run still explores: the bonus may have collapsed or drown the reward, the policy may be certain."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from rnd.metrics.metrics import Row

WINDOW = 20
"""Iterations over which the measures are averaged."""
MIN_SPREAD = 0.05
"""Lowest healthy std of the bonus over a rollout, as a share of its mean. Below it the bonus is the same everywhere."""
MIN_SHARE, MAX_SHARE = 0.01, 0.95
"""Share of the bonus in the std of the weighted returns: lowest and highest healthy value."""
MIN_ENTROPY = 0.001
"""Below it a softmax has hardly a gradient left. The entropy of continuous actions has no such bound; it is negative
where their std is small."""
SOLVED = 0.9
"""A certain policy with this success is as it should be."""

SAME = (
    "the bonus has collapsed: it is nearly the same in all states (spread {spread:.2f}), and all episodes have the "
    "same return; for rnd try a smaller --bonus-lr or more --bonus-options.features; count needs states that come again"
)
WEAK = (
    "the bonus has collapsed: it is {share:.1%} of the std of the returns, and all episodes have the same "
    "return; try a smaller --bonus-lr, or a smaller --ext-coef"
)
DROWNS = (
    "the bonus drowns the reward: it is {share:.0%} of the std of the returns, although episodes differ in their "
    "return; try a smaller --int-coef or a larger --ext-coef"
)
CERTAIN = (
    "the policy is certain: its entropy is {entropy:.1g}, so it explores no more and hardly changes, and its mean "
    "return is below its best; if it should be higher, try a larger --entropy-coef or a smaller --lr"
)


class RunHealth:
    """Reads the rows of a run; `warnings` are about the last of them."""

    def __init__(self, columns: Mapping[str, Any]):
        """From the metrics so far; `add` continues them."""
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._means: deque[float | None] = deque(maxlen=WINDOW)
        self._entropies: deque[float | None] = deque(maxlen=WINDOW)
        self._differ = self._solved = False
        for values in zip(*columns.values(), strict=False):
            self.add(dict(zip(columns, values, strict=True)))

    def add(self, row: Row) -> None:
        spread, share, best, mean = (
            row.get(name) for name in ("bonus_spread", "bonus_share", "return_best", "return_mean")
        )
        self._differ = best is not None and mean is not None and best > mean
        self._solved = (row.get("success") or 0.0) >= SOLVED
        self._means.append(mean)
        self._entropies.append(row.get("entropy"))
        if row.get("bonus_raw") and spread is not None and share is not None:  # 0: a run without a bonus
            self._recent.append((spread, share))

    def warnings(self) -> list[str]:
        """What is wrong and what to try."""
        return [text for text in (self._of_the_bonus(), self._of_the_policy()) if text]

    def _of_the_policy(self) -> str | None:
        known = [entropy for entropy in self._entropies if entropy is not None and 0 <= entropy < MIN_ENTROPY]
        if len(known) < WINDOW or self._solved or not self._differ:
            return None
        return CERTAIN.format(entropy=known[-1])

    def _of_the_bonus(self) -> str | None:
        """While returns differ, a bonus that fades is as it should be."""
        if len(self._recent) < WINDOW:
            return None
        spread, share = (fmean(values) for values in zip(*self._recent, strict=True))
        if self._differ:
            # A reward that one episode has found so far cannot drown: then the mean is nearly always what it was.
            regular = sum(a != b for a, b in pairwise(self._means)) >= WINDOW // 2
            text = DROWNS if share > MAX_SHARE and regular else None
        else:
            text = SAME if spread < MIN_SPREAD else WEAK if share < MIN_SHARE else None
        return text.format(spread=spread, share=share) if text else None
