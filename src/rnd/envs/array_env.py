"""N environments that are stepped together as numpy arrays.

`ArrayVectorEnv` gives an `ArrayEnv` the trainer's interface, and `SingleEnv` makes one of its environments a Gymnasium
environment. Both run the same code. Worker processes import this file: no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from rnd.envs.spec import Arrays, EnvSpec, buffer_layout


class ArrayEnv(ABC):
    """N environments as arrays. `state` holds everything that changes, so saving is copying."""

    spec: EnvSpec
    state: Arrays
    """One row per environment."""

    @abstractmethod
    def reset(self, out: Arrays) -> None:
        """Start all episodes; write obs, room and lives."""

    @abstractmethod
    def step(self, out: Arrays, rows: slice) -> None:
        """Take `out["action"][rows]` and write all the other arrays; ended episodes are reset in the same step.

        `out["final_obs"]` and `out["final_room"]`, where they exist, get the last ones of the episodes that ended.
        """


class SingleEnv(gymnasium.Env[np.ndarray, np.int64]):
    """An `ArrayEnv` with one row as a Gymnasium environment."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium's attribute

    def __init__(self, make_array_env: Callable[[int], ArrayEnv]):
        self.make_array_env = make_array_env
        self._start(0)
        spec = self.envs.spec
        self.observation_space = gymnasium.spaces.Box(0, 1, spec.observation.shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(spec.action.sizes[0])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._start(seed)
        self.envs.reset(self.out)
        return self.out["obs"][0].copy(), self._info()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.out["action"][0] = action
        self.envs.step(self.out, slice(0, 1))
        terminated, truncated = bool(self.out["terminated"][0]), bool(self.out["truncated"][0])
        final = "final_" if terminated or truncated else ""
        obs = self.out[final + "obs"][0].copy()
        return obs, float(self.out["reward"][0]), terminated, truncated, self._info(final)

    def _start(self, seed: int) -> None:
        self.envs = self.make_array_env(seed)
        layout = buffer_layout(self.envs.spec, 1)
        self.out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}
        self.out.setdefault("final_obs", np.zeros_like(self.out["obs"]))

    def _info(self, final: str = "") -> dict[str, Any]:
        return {"room": int(self.out[final + "room"][0])} if self.envs.spec.has_rooms else {}
