"""Any Gymnasium environment as a cell.

Saved by its seed and its actions: every episode starts with `reset(seed=...)` from our own stream of seeds, so the
state in mid-episode is the seed and the actions since. That is exact for every environment that draws its randomness
from its seed, needs nothing from the environment, and never unpickles anything. Restoring checks that the replay ends
in the observation that was saved.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from rnd.envs.observations import Encoder, make_encoder
from rnd.envs.spec import ActionSpec, Arrays, Cell, EnvSpec
from rnd.envs.splitmix import mix
from rnd.errors import RunError, UserError


class GymCell(Cell):
    """One Gymnasium environment with same-step reset."""

    def __init__(self, factory: Callable[[], Any], env_id: str, seed: int):
        self.env = factory()
        self.seed = seed
        self.episode = 0
        self.actions: list[np.ndarray] = []
        self.encode: Encoder = make_encoder(self.env.observation_space, env_id)
        action = action_spec(self.env.action_space, env_id)
        self._first_action = int(getattr(self.env.action_space, "start", 0)) if action.kind == "discrete" else 0
        sparse = env_id.startswith("MiniGrid") or bool(getattr(self.env.unwrapped, "sparse", False))
        grid = env_id.startswith(("MiniGrid", "BabyAI"))
        self.spec = EnvSpec(
            id=env_id,
            observation=self.encode.spec,
            action=action,
            success_return=0.0 if sparse else None,
            backend="gymnasium",
            time_limits=True,
            has_rooms=grid,
            has_cells=grid,
        )

    def reset(self, out: Arrays, i: int) -> None:
        self.encode(self._start(), out["obs"][i])
        self._place(out, i)

    def step(self, out: Arrays, i: int) -> None:
        obs, reward, terminated, truncated, _ = self._act(out["action"][i])
        out["reward"][i] = reward
        out["terminated"][i] = terminated
        out["truncated"][i] = truncated and not terminated
        if terminated or truncated:
            self.encode(obs, out["final_obs"][i])
            self.episode += 1
            self.reset(out, i)
        else:
            self.encode(obs, out["obs"][i])
            self._place(out, i)

    def save(self) -> bytes:
        header = {"seed": self.seed, "episode": self.episode, "steps": len(self.actions)}
        actions = np.asarray(self.actions, self.spec.action.dtype)
        return json.dumps(header).encode() + b"\n" + actions.tobytes()

    def load(self, data: bytes, out: Arrays, i: int) -> None:
        line, raw = data.split(b"\n", 1)
        header = json.loads(line)
        self.seed, self.episode = int(header["seed"]), int(header["episode"])
        actions = np.frombuffer(raw, self.spec.action.dtype).reshape(header["steps"], *self.spec.action.shape)
        obs = self._start()
        for action in actions:
            obs = self._act(action)[0]
        replayed = np.zeros_like(out["obs"][i])
        self.encode(obs, replayed)
        if not np.array_equal(replayed, out["obs"][i]):
            raise RunError(
                f"{self.spec.id} does not repeat itself from its seed and actions, so it cannot be restored exactly; "
                "its randomness must come from reset(seed=...)"
            )

    def close(self) -> None:
        self.env.close()

    def _place(self, out: Arrays, i: int) -> None:
        if self.spec.has_cells:
            x, y = self.env.unwrapped.agent_pos
            out["room"][i] = int(y) * 256 + int(x)

    def _start(self) -> Any:
        self.actions = []
        return self.env.reset(seed=mix(self.seed + self.episode) >> 33)[0]

    def _act(self, action: np.ndarray) -> Any:
        self.actions.append(action.copy())
        if self.spec.action.kind == "discrete":
            return self.env.step(int(action) + self._first_action)
        if self.spec.action.kind == "continuous":
            action = np.clip(action, self.spec.action.low, self.spec.action.high).astype(np.float32)
            return self.env.step(action.reshape(self.env.action_space.shape))
        return self.env.step(action)


def action_spec(space: Any, env_id: str) -> ActionSpec:
    """Our description of a Gymnasium action space."""
    kind = type(space).__name__
    if kind == "Discrete":
        return ActionSpec("discrete", (int(space.n),))
    if kind == "MultiDiscrete":
        return ActionSpec("multi_discrete", tuple(int(n) for n in space.nvec.reshape(-1)))
    if kind == "Box":
        low, high = (tuple(map(float, bound.reshape(-1))) for bound in (space.low, space.high))
        return ActionSpec("continuous", (len(low),), low, high)
    raise UserError(f"{env_id} has {kind} actions; Discrete, MultiDiscrete and Box are supported")
