"""Advice about how a run is set up, each once: a reward that needs no bonus, an environment that needs processes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rnd.config import Config
from rnd.config.presets import preset
from rnd.metrics.episodes import EpisodeStats
from rnd.metrics.metrics import Row

EPISODES = 20
"""After so many, within the first part of the frames, it is known whether returns differ from the start."""
EARLY = 0.2
"""That part of the frames."""
SECONDS, SHARE = 20.0, 0.5
"""An environment is slow that takes more than this share of the first so many seconds."""

DENSE = (
    "note: returns differ from the first episodes on. Where every step is rewarded, a bonus may cost more than it "
    "gives: compare --bonus none"
)
SLOW = "note: {share:.0%} of the time is the environment's, in one process; --env.workers {cores} steps it in {cores}"


class Hints:
    """What `add` returns is to be printed."""

    def __init__(self, config: Config, episodes: EpisodeStats, cores: int):
        """`cores`: for worker processes that could step the environments; 1 or less where none can."""
        self.episodes, self.cores, self.early = episodes, cores, EARLY * config.frames
        env_id = config.env.id
        # A preset with RND was chosen by results, and where any reward is a success, rewards are sparse.
        known = env_id.startswith("ALE/") or preset(env_id).bonus == "rnd" or episodes.success_return is not None
        self.dense_known = known or config.bonus == "none"
        self.spent: Counter[str] = Counter()

    def add(self, row: Row, times: Row) -> list[str]:
        """The advice after an iteration, with its rows of metrics.csv and timing.csv."""
        found = [self._dense(row), self._slow(times)]
        return [text for text in found if text]

    def _dense(self, row: Row) -> str | None:
        """The quartiles of the first returns differ: one lucky episode makes no reward dense."""
        if self.dense_known or len(self.episodes.returns) < EPISODES:
            return None
        self.dense_known = True
        low, high = np.quantile(list(self.episodes.returns), (0.25, 0.75))
        return DENSE if (row["frames"] or 0) <= self.early and low != high else None

    def _slow(self, times: Row) -> str | None:
        if self.cores < 2:
            return None
        self.spent.update({name: float(times.get(name) or 0) for name in ("seconds", "emulation")})
        if self.spent["seconds"] < SECONDS:
            return None
        share, cores, self.cores = self.spent["emulation"] / self.spent["seconds"], self.cores, 0
        return SLOW.format(share=min(share, 1.0), cores=cores) if share > SHARE else None
