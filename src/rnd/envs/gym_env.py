"""One Gymnasium environment.

It is saved as its seed and its actions: every episode starts with `reset(seed=...)`, so the state within an episode is
that seed and the actions since. This is exact for every environment that draws its randomness from its seed, and
nothing is pickled. Restoring checks that the replay ends in the observation that was saved.

Episode e of an environment starts with the upper 31 bits (some environments take no more) of a hash of the
environment's seed plus e: the same in every backend, and however often the run was interrupted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rnd.envs.observations import make_encoder
from rnd.envs.spec import ActionSpec, Arrays, Env, EnvSpec
from rnd.envs.splitmix import mix
from rnd.errors import RunError, UserError

LONGEST_EPISODE = 2**20
"""Steps after which an episode is truncated: its actions are kept until it ends, and played again to restore it."""


class GymEnv(Env):
    """One Gymnasium environment with same-step reset."""

    def __init__(self, factory: Callable[[], Any], env_id: str, seed: int):
        self.env = factory()
        self.seed, self.episode = seed, 0
        observation, self.encode = make_encoder(self.env.observation_space, env_id)
        self.to_gym = ActionTranslator(self.env.action_space, env_id)
        grid = env_id.startswith(("MiniGrid", "BabyAI"))
        self.spec = EnvSpec(
            id=env_id,
            observation=observation,
            action=self.to_gym.spec,
            success_return=0.0 if is_sparse(self.env, env_id) else None,
            backend="gymnasium",
            time_limits=True,
            has_rooms=grid,
            has_cells=grid,
        )
        action = self.spec.action
        discrete = action.kind != "continuous"
        self.log_type = np.min_scalar_type(max(action.sizes) - 1) if discrete else np.dtype(action.dtype)
        self.longest_log = LONGEST_EPISODE * self.log_type.itemsize * math.prod(action.shape)
        self.log = bytearray()
        """The actions since the start of the episode, in the smallest integers that hold them."""

    def reset(self, out: Arrays, i: int) -> None:
        self._write(self._start(), out, i)

    def step(self, out: Arrays, i: int) -> None:
        obs, reward, terminated, truncated, _ = self._act(out["action"][i])
        truncated = truncated or len(self.log) >= self.longest_log
        out["reward"][i] = reward
        out["terminated"][i] = terminated
        out["truncated"][i] = truncated and not terminated
        ended = "final_" if terminated or truncated else ""
        self._write(obs, out, i, ended)
        if ended:
            self.episode += 1
            self.reset(out, i)

    def save(self) -> bytes:
        header = {"seed": self.seed, "episode": self.episode, "type": self.log_type.str}
        return json.dumps(header).encode() + b"\n" + self.log

    def load(self, data: bytes, out: Arrays, i: int) -> None:
        line, raw = data.split(b"\n", 1)
        header = json.loads(line)
        self.seed, self.episode = int(header["seed"]), int(header["episode"])
        spec = self.spec.action
        stored = self.log_type if "type" in header else spec.dtype  # older states have whole words
        actions = np.frombuffer(raw, stored).reshape(-1, *spec.shape).astype(spec.dtype)
        if spec.kind != "continuous" and ((actions < 0) | (actions >= np.array(spec.sizes))).any():
            raise RunError("a damaged state, with actions that the environment does not have")
        obs = self._start()
        for action in actions:
            obs = self._act(action)[0]
        replayed = np.zeros_like(out["obs"][i])
        self.encode(obs, replayed)
        if not np.array_equal(replayed, out["obs"][i]):
            raise RunError(
                f"{self.spec.id} does not repeat itself from its seed and actions, so it cannot be restored exactly; "
                "make it draw its randomness from reset(seed=...)"
            )

    def close(self) -> None:
        self.env.close()

    def _write(self, obs: Any, out: Arrays, i: int, prefix: str = "") -> None:
        self.encode(obs, out[prefix + "obs"][i])
        if self.spec.has_cells:
            x, y = self.env.unwrapped.agent_pos
            out[prefix + "room"][i] = int(y) * 256 + int(x)

    def _start(self) -> Any:
        self.log.clear()
        return self.env.reset(seed=mix((self.seed + self.episode) % 2**64) >> 33)[0]

    def _act(self, action: np.ndarray) -> Any:
        self.log += action.astype(self.log_type).tobytes()
        return self.env.step(self.to_gym(action))


class ActionTranslator:
    """From the trainer's actions to those of a Gymnasium space, for one environment or a batch of them."""

    def __init__(self, space: Any, env_id: str):
        self.spec = action_spec(space, env_id)
        self.space = space

    def __call__(self, action: np.ndarray) -> Any:
        """`action` may have leading dimensions before those of one action."""
        batch = action.shape[: action.ndim - len(self.spec.shape)]
        if self.spec.kind == "discrete":
            shifted = action + int(self.space.start)
            return shifted if batch else int(shifted)
        if self.spec.kind == "continuous":
            action = np.clip(action, self.spec.low, self.spec.high)
        start = getattr(self.space, "start", 0) if self.spec.kind == "multi_discrete" else 0
        return action.reshape(*batch, *self.space.shape).astype(self.space.dtype) + np.asarray(start, self.space.dtype)


def is_sparse(env: Any, env_id: str) -> bool:
    """Whether any reward is a success: in MiniGrid, and in environments with a true attribute `sparse`."""
    return env_id.startswith(("MiniGrid", "BabyAI")) or bool(getattr(env.unwrapped, "sparse", False))


def action_spec(space: Any, env_id: str) -> ActionSpec:
    """The spec of a Gymnasium action space."""
    kind = type(space).__name__
    if kind == "Discrete":
        return ActionSpec("discrete", (int(space.n),))
    if kind == "MultiDiscrete":
        return ActionSpec("multi_discrete", tuple(int(n) for n in space.nvec.reshape(-1)))
    if kind == "Box":
        low, high = (tuple(map(float, bound.reshape(-1))) for bound in (space.low, space.high))
        return ActionSpec("continuous", (len(low),), low, high)
    raise UserError(f"{env_id} has {kind} actions; Discrete, MultiDiscrete and Box are supported")
