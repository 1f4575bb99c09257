"""Environments of our own that step all N at once in numpy.

A `Batch` is the environment; `BatchEnvs` puts it behind the interface of the trainer, and `SingleEnv` shows one of it
to Gymnasium. Both run the same code, so there is nothing to keep equal.

Legend: N environments, n = rows that are stepped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from rnd.envs.spec import Arrays, EnvSpec, buffer_layout


class Batch(ABC):
    """N environments as arrays. Everything that changes lies in `state`, so saving is copying."""

    spec: EnvSpec
    state: Arrays
    """What changes, one row an environment."""

    @abstractmethod
    def reset(self, out: Arrays) -> None:
        """Start all episodes; write obs, room and lives."""

    @abstractmethod
    def step(self, out: Arrays, rows: slice) -> None:
        """Take `out["action"][rows]`, write all the other arrays; ended episodes are reset in the same step.

        `out["final_obs"]`, where there is one, gets the last observation of the episodes that ended.
        """


class SingleEnv(gymnasium.Env[np.ndarray, np.int64]):
    """A batch of one as a Gymnasium environment."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium's own attribute

    def __init__(self, make_batch: Callable[[int], Batch]):
        self.make_batch = make_batch
        self._start(0)
        spec = self.batch.spec
        self.observation_space = gymnasium.spaces.Box(0, 1, spec.observation.shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(spec.action.sizes[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._start(seed)
        self.batch.reset(self.out)
        return self.out["obs"][0].copy(), self._info()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.out["action"][0] = action
        self.batch.step(self.out, slice(0, 1))
        terminated, truncated = bool(self.out["terminated"][0]), bool(self.out["truncated"][0])
        obs = self.out["final_obs" if terminated or truncated else "obs"][0].copy()
        return obs, float(self.out["reward"][0]), terminated, truncated, self._info()

    def _start(self, seed: int) -> None:
        self.batch = self.make_batch(seed)
        layout = buffer_layout(self.batch.spec, 1)
        self.out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}
        self.out.setdefault("final_obs", np.zeros_like(self.out["obs"]))

    def _info(self) -> dict[str, Any]:
        return {"room": int(self.out["room"][0])} if self.batch.spec.has_rooms else {}
