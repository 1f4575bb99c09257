"""Whether a run still explores: the bonus may have collapsed or drown the reward, the policy may be certain."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from rnd.config import Config
from rnd.config.presets import preset
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

NEVER = "no reward yet: after {frames} frames no episode has returned more than {best:g}; try {what}"
SELDOM = "the reward is not learned: it was found (best return {best:g}), but not by the last 100 episodes; try {what}"
ZERO_AFTER = 0.25
"""Share of its frames after which a run without rewards says what to try."""
TOOK = (80_000, 520_000)
"""Frames, about, that small tasks with doors or a key took until they were learned (docs/small-tasks.md)."""


class RunHealth:
    """Reads the rows of a run; `warnings` are about the last of them."""

    def __init__(self, columns: Mapping[str, Any], config: Config | None = None):
        """From the metrics so far; `add` continues them. Without `config` there is no warning that no reward is found:
        what to try then depends on it."""
        self._config = config
        self._row: Row = {}
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
        self._row = row
        self._differ = best is not None and mean is not None and best > mean
        self._solved = (row.get("success") or 0.0) >= SOLVED
        self._means.append(mean)
        self._entropies.append(row.get("entropy"))
        if row.get("bonus_raw") and spread is not None and share is not None:  # 0: a run without a bonus
            self._recent.append((spread, share))

    def warnings(self) -> list[str]:
        """What is wrong and what to try."""
        return [text for text in (self._of_the_bonus(), self._of_the_policy(), self._of_the_reward()) if text]

    def _of_the_reward(self) -> str | None:
        """After a share of the frames: no episode, or none of the last 100, has a reward. Returns below 0 count where
        they are all the same: a penalty per step until the end."""
        config, best, mean = self._config, self._row.get("return_best"), self._row.get("return_mean")
        frames = self._row.get("frames") or 0
        if config is None or best is None or mean is None or frames < ZERO_AFTER * config.frames:
            return None
        what = "; ".join(ways_out(config, self._row))
        if mean == best <= 0:
            return NEVER.format(frames=f"{frames:,.0f}", best=best, what=what)
        return SELDOM.format(best=best, what=what) if mean == 0 < best else None

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


def ways_out(config: Config, row: Row) -> list[str]:
    """What to try where no reward is found: newer weights, another bonus, another horizon, more frames."""
    older = config.overlap and config.overlap_refresh == "rollout"
    found = ["--overlap-refresh epoch (acting with older weights finds less)"] if older else []
    if config.env.id.startswith("ALE/"):
        return [*found, f"more frames (--frames; the paper's runs have 1,966,080,000, this one {config.frames:,})"]
    first = preset(config.env.id).bonus
    bonus = first if config.bonus != first else "rnd" if first == "noveld" else "noveld"
    why = "first visits within an episode: better with doors, keys and mazes" if bonus == "noveld" else "novelty"
    found.append(f"--bonus {bonus} ({why})")
    length, horizon = row.get("length_mean") or 0, 1 / max(1 - config.gamma_int, 1e-6)
    if config.bonus != "none" and length > 1.5 * horizon:
        gamma = f"{1 - 1 / length:.3f}"
        found.append(f"--gamma-int {gamma} (episodes have {length:.0f} steps, the bonus looks {horizon:.0f} ahead)")
    if config.frames < TOOK[1]:
        found.append(f"more frames (such tasks took {TOOK[0]:,} to {TOOK[1]:,}; this run has {config.frames:,})")
    return [*found, "docs/troubleshooting.md"]
