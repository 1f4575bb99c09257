"""One Gymnasium environment.

It is saved as its seed and its actions: every episode starts with `reset(seed=...)`, so the state within an episode is
that seed and the actions since. This is exact for every environment that draws its randomness from its seed, and
nothing is pickled. Restoring checks that the replay ends in the observation that was saved; where it does not, the
episode is given up and a new one starts.

Episode e of an environment starts with the upper 31 bits (some environments take no more) of a hash of the
environment's seed plus e: the same in every backend, and however often the run was interrupted.
"""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from rnd.config import Reads
from rnd.config.presets import is_minigrid
from rnd.envs.encoders import SUPPORTED, WrongObservationError
from rnd.envs.observations import is_composite, make_encoder, subspaces
from rnd.envs.process_io import FAULTS
from rnd.envs.spec import ActionSpec, Arrays, Env, EnvSpec, buffer_layout
from rnd.envs.splitmix import mix
from rnd.foundation.errors import RunError, UserError

MAX_EPISODE_STEPS = 2**20
"""Steps after which an episode is truncated: its actions are kept until it ends, and played again to restore it."""
TRIAL_STEPS, TRIAL_SECONDS = 32, 1.0
"""How long an environment is played to find out whether it repeats itself."""


def one_number(reward: Any) -> float:
    """A reward, which some environments return as an array of one number."""
    if isinstance(reward, int | float):
        return reward
    try:
        return float(np.asarray(reward).item())
    except (TypeError, ValueError):
        raise RunError(f"its reward is {reward!r:.60}, not one number") from None


class GymEnv(Env):
    """One Gymnasium environment with same-step reset."""

    def __init__(self, factory: Callable[[], Any], env_id: str, seed: int, reads: Reads = "all"):
        """`reads`: what of observations with images."""
        self.factory, self.env = factory, factory()
        self.env_id, self.reads = env_id, reads
        parameters = inspect.signature(self.env.reset).parameters.values()
        if not any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters):
            raise old_gym(env_id, "its reset takes no seed")
        self.seed, self.episode = seed, 0
        observation, self.encode = make_encoder(self.env.observation_space, env_id, reads)
        self.to_gym = ActionTranslator(self.env.action_space, env_id)
        grid = is_minigrid(env_id)
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
        self.log_type = action.smallest
        self.max_log = MAX_EPISODE_STEPS * self.log_type.itemsize * math.prod(action.shape)
        self.log = bytearray()
        """The actions since the start of the episode, in the smallest integers that hold them."""
        self.lost = False
        """The episode could not be restored: the next step ends it."""

    def reset(self, out: Arrays, i: int) -> None:
        self._write(self._start(), out, i)

    def step(self, out: Arrays, i: int) -> None:
        if self.lost:
            self._give_up(out, i)
            return
        obs, reward, terminated, truncated, _ = self._act(out["action"][i])
        truncated = truncated or len(self.log) >= self.max_log
        out["reward"][i] = one_number(reward)
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

    def load(self, data: bytes, out: Arrays, i: int) -> bool:
        line, raw = data.split(b"\n", 1)
        header = json.loads(line)
        self.seed, self.episode = int(header["seed"]), int(header["episode"])
        spec = self.spec.action
        actions = np.frombuffer(raw, self.log_type).reshape(-1, *spec.shape).astype(spec.dtype)
        if spec.kind != "continuous" and ((actions < 0) | (actions >= np.array(spec.sizes))).any():
            raise RunError("a damaged state, with actions that the environment does not have")
        self.lost = not (self.exact and self._replay(actions, out["obs"][i]))
        return not self.lost

    def _replay(self, actions: np.ndarray, saved: np.ndarray) -> bool:
        """Play the actions of a saved episode; returns whether that leads to the saved observation."""
        replayed = np.zeros_like(saved)
        try:
            obs, ended = self._start(), False
            for action in actions:
                if ended:
                    return False
                obs, _, terminated, truncated, _ = self._act(action)
                ended = bool(terminated or truncated)
            self.encode(obs, replayed)
        except FAULTS:  # an action that is impossible in another state; if it is a fault, the next episode has it too
            return False
        return np.array_equal(replayed, saved)

    def _give_up(self, out: Arrays, i: int) -> None:
        """End the episode that could not be restored, as at a time limit, and start the next."""
        self.lost = False
        for name in ("obs", "room"):
            out[f"final_{name}"][i] = out[name][i]
        out["reward"][i], out["terminated"][i], out["truncated"][i] = 0, False, True
        self.episode += 1
        self.reset(out, i)

    def repeats(self) -> bool:
        """Plays the same actions twice from the same seed, in an environment that is closed after it."""
        try:
            with closing(GymEnv(self.factory, self.env_id, self.seed, self.reads)) as other:
                first, second = other._trial(), other._trial()
                return all(a == b for a, b in zip(first, second, strict=False))
        except FAULTS:  # the run itself will meet it, and reports where
            return True

    def _trial(self) -> list[bytes]:
        """What the steps of a first episode of random actions returned; fewer where they are slow."""
        out: Arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in buffer_layout(self.spec, 1).items()}
        random, action, deadline = np.random.default_rng(0), self.spec.action, time.monotonic() + TRIAL_SECONDS
        self.episode = 0
        self.reset(out, 0)
        seen = [out["obs"].tobytes()]
        while len(seen) <= TRIAL_STEPS and time.monotonic() < deadline:
            drawn = (
                random.standard_normal(action.sizes) if action.kind == "continuous" else random.integers(action.sizes)
            )
            out["action"][0] = drawn.reshape(action.shape)
            self.step(out, 0)
            seen.append(b"".join(out[name].tobytes() for name in ("obs", "reward", "terminated", "truncated")))
        return seen

    def close(self) -> None:
        self.env.close()

    def _write(self, obs: Any, out: Arrays, i: int, prefix: str = "") -> None:
        try:
            self.encode(obs, out[prefix + "obs"][i])
        except WrongObservationError as error:
            size = self.log_type.itemsize * math.prod(self.spec.action.shape)
            before = max(len(self.log) // size - 1, 0)
            raise RunError(f"{error}, at step {before} of its episode") from None
        if self.spec.has_cells:
            x, y = self.env.unwrapped.agent_pos
            out[prefix + "room"][i] = int(y) * 256 + int(x)

    def _start(self) -> Any:
        self.log.clear()
        result = self.env.reset(seed=mix((self.seed + self.episode) % 2**64) >> 33)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise old_gym(self.env_id, "its reset does not return an observation and a dictionary")
        return result[0]

    def _act(self, action: np.ndarray) -> Any:
        self.log += action.astype(self.log_type).tobytes()
        result = self.env.step(self.to_gym(action))
        if not (isinstance(result, tuple) and len(result) == 5):
            count = len(result) if isinstance(result, tuple) else 1
            raise old_gym(self.env_id, f"its step returns {count} value{'s' * (count != 1)}, not 5")
        return result


def old_gym(env_id: str, what: str) -> UserError:
    """The error for an environment that does not have Gymnasium's interface."""
    return UserError(
        f"{env_id} does not have the interface of Gymnasium, maybe that of the old gym: {what}; wrap it in "
        'shimmy.GymV21CompatibilityV0(env=...), from pip install "shimmy[gym-v21]"'
    )


class ActionTranslator:
    """From the trainer's actions to those of a Gymnasium space, for one environment or a batch of them."""

    def __init__(self, space: Any, env_id: str):
        self.space, self.subspaces = space, {n: ActionTranslator(subspace, env_id) for n, subspace in subspaces(space)}
        specs: list[ActionSpec] = [translator.spec for translator in self.subspaces.values()]
        self.spec: ActionSpec = joint_spec(specs, env_id) if is_composite(space) else action_spec(space, env_id)
        self.ends = np.cumsum([math.prod(spec.shape) for spec in specs])[:-1]

    def __call__(self, action: np.ndarray) -> Any:
        """`action` may have leading dimensions before those of one action."""
        if self.subspaces:
            return self._composite(np.split(action, self.ends, axis=-1))
        batch = action.shape[: action.ndim - len(self.spec.shape)]
        if self.spec.kind == "discrete":
            shifted = action + int(self.space.start)
            return shifted if batch else int(shifted)
        if self.spec.kind == "continuous":
            action = np.clip(action, self.spec.low, self.spec.high)
        start = getattr(self.space, "start", 0) if self.spec.kind == "multi_discrete" else 0
        return action.reshape(*batch, *self.space.shape).astype(self.space.dtype) + np.asarray(start, self.space.dtype)

    def _composite(self, columns: list[np.ndarray]) -> Any:
        """A dictionary or tuple, each entry from its own columns."""
        values = [
            translator(own[..., 0] if translator.spec.kind == "discrete" else own)
            for translator, own in zip(self.subspaces.values(), columns, strict=True)
        ]
        named = type(self.space).__name__ == "Dict"
        return dict(zip(self.subspaces, values, strict=True)) if named else tuple(values)


def is_sparse(env: Any, env_id: str) -> bool:
    """Whether any reward is a success: in MiniGrid, and in environments with a true attribute `sparse`."""
    return is_minigrid(env_id) or bool(getattr(env.unwrapped, "sparse", False))


def action_spec(space: Any, env_id: str) -> ActionSpec:
    """The spec of a Gymnasium action space."""
    kind = type(space).__name__
    if kind == "Discrete":
        return ActionSpec("discrete", (int(space.n),))
    if kind == "MultiDiscrete":
        return ActionSpec("multi_discrete", tuple(int(n) for n in space.nvec.reshape(-1)))
    if kind == "MultiBinary":
        return ActionSpec("multi_discrete", (2,) * math.prod(space.shape))
    if kind == "Box":
        low, high = (tuple(map(float, bound.reshape(-1))) for bound in (space.low, space.high))
        return ActionSpec("continuous", (len(low),), low, high)
    raise UserError(f"{env_id} has {kind} actions; {SUPPORTED} are supported")


def joint_spec(specs: list[ActionSpec], env_id: str) -> ActionSpec:
    """The spec of several actions at once."""
    continuous = {spec.kind == "continuous" for spec in specs}
    if len(continuous) != 1:
        what = "no actions" if not specs else "discrete and continuous actions together"
        raise UserError(f"{env_id} has {what}, which no policy here can take; wrap it so that all are of one kind")
    sizes = tuple(size for spec in specs for size in spec.sizes)
    if not continuous.pop():
        return ActionSpec("multi_discrete", sizes)
    low, high = (tuple(x for spec in specs for x in getattr(spec, name)) for name in ("low", "high"))
    return ActionSpec("continuous", (len(low),), low, high)
