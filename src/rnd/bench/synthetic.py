"""Environments that take no time: random frames, rewards and ends, so that the learner can be measured alone."""

from __future__ import annotations

import numpy as np

from rnd.envs.interface import Buffers, VectorEnv
from rnd.envs.spec import SCREEN, ActionSpec, Arrays, EnvSpec, ObservationSpec

FRAMES = 64
"""Different frames; enough that successive ones always differ."""


class SyntheticAtari(VectorEnv):
    """Frames of Atari's shape from a fixed set."""

    def __init__(self, num_envs: int, frame_skip: int = 4):
        observation, action = ObservationSpec("image", (SCREEN, SCREEN)), ActionSpec("discrete", (18,))
        spec = EnvSpec("synthetic", observation, action, frame_skip=frame_skip, backend="synthetic")
        super().__init__(spec, num_envs, Buffers(spec, num_envs), groups=2)
        self.random = np.random.default_rng(0)
        self._frames = self.random.integers(0, 256, (FRAMES, num_envs, SCREEN, SCREEN), dtype=np.uint8)
        self._step = 0

    def _reset(self) -> None:
        self.buffers["obs"][:] = self._frames[0]

    def _send(self, group: slice) -> None:
        self._step += 1
        self.buffers["obs"][group] = self._frames[self._step % FRAMES, group]
        size = group.stop - group.start
        self.buffers["reward"][group] = self.random.random(size) < 0.01
        self.buffers["terminated"][group] = self.random.random(size) < 0.005

    def _save(self) -> Arrays:
        return {}

    def _load(self, state: Arrays) -> None:
        """Nothing was saved."""
