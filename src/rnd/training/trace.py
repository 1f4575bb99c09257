"""A trace: the actions of one episode, with all that plays it again without the agent. Plain JSON, a few kilobytes.

format, rnd    version of this format, and of the program that wrote it
env            id and settings of the environment, seed, and number of the environment; random_seed: the seed of its
               generator (of the sticky actions, for Atari), which follows from the two
episode        seed and number for `rnd watch`, score, steps, rooms; observations_sha256 (Atari): of all frames
agent          name, iteration, frames, mean_return, and policy_sha256: which weights played
actions        one per step: type, shape, and their bytes, zlib in base64
"""

from __future__ import annotations

import base64
import hashlib
import math
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from rnd import __version__
from rnd.config import Config
from rnd.envs.spec import EnvSpec
from rnd.envs.splitmix import environment_seed
from rnd.foundation.errors import UserError
from rnd.foundation.files import read_errors, read_json
from rnd.training.evaluation import MAX_STEPS

FORMAT = 1
SETTINGS = ("id", "frame_skip", "sticky", "max_episode_frames")
"""What decides how an environment plays, beside its seed and number."""
MAX_FRAMES = 4 * MAX_STEPS
"""Raw frames of an episode that is played again."""
MAX_ACTION_BYTES = 2**12


@dataclass(frozen=True)
class Trace:
    """One episode."""

    config: Config
    """Config of the one environment; env.first is its number."""
    actions: np.ndarray
    """[steps, ...], in the smallest type that holds them."""
    seed: int
    """Seed of the evaluation: that of `config`, but for environments whose problem has a seed of its own (rnd/...)."""
    score: float
    rooms: list[int]
    agent: dict[str, Any]
    observations_sha256: str | None = None

    @property
    def number(self) -> int:
        return self.config.env.first

    def to_dict(self) -> dict[str, Any]:
        config = self.config
        settings = {name: getattr(config.env, name) for name in SETTINGS}
        random_seed = hex(environment_seed(config.seed, self.number))  # too large for a number in some JSON readers
        where = {"seed": config.seed, "number": self.number, "random_seed": random_seed, "policy": config.policy}
        episode = {"seed": self.seed, "number": self.number, "score": self.score, "steps": len(self.actions)}
        packed = base64.b64encode(zlib.compress(np.ascontiguousarray(self.actions).tobytes(), 9)).decode()
        return {
            "format": FORMAT,
            "rnd": __version__,
            "env": settings | where,
            "episode": episode | {"rooms": self.rooms, "observations_sha256": self.observations_sha256},
            "agent": self.agent,
            "actions": {"type": self.actions.dtype.str, "shape": [*self.actions.shape], "zlib": packed},
        }


def read_trace(path: Path) -> Trace:
    """The trace in a file, which may be a stranger's. One that cannot be played is a UserError."""
    with read_errors(path, "a trace of rnd evaluate"):
        return from_dict(read_json(path))


def from_dict(data: dict[str, Any]) -> Trace:
    """The inverse of `Trace.to_dict`. Raises what `read_errors` turns into one line."""
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r:.20}; this rnd reads format {FORMAT}")
    env, episode, agent = data["env"], data["episode"], data["agent"]
    config = episode_config(
        Config.from_dict(
            {
                "env": {name: env[name] for name in SETTINGS} | {"first": env["number"]},
                "seed": env["seed"],
                "policy": "mlp" if env["policy"] == "mlp" else "cnn",  # how observations are read; nothing is imported
            }
        )
    )
    config.validate()
    actions = unpack(data["actions"], config.env.frame_skip)
    if len(actions) != episode["steps"]:
        raise ValueError(f"{len(actions)} actions for {episode['steps']!r:.20} steps")
    rooms, score, sha256 = episode["rooms"], episode["score"], episode["observations_sha256"]
    if not isinstance(rooms, list) or not all(type(room) is int for room in rooms):
        raise TypeError("rooms are numbers")
    if type(score) not in (int, float) or not math.isfinite(score) or type(episode["seed"]) is not int:
        raise TypeError("score and seed are numbers")
    if not isinstance(agent, dict) or not (sha256 is None or isinstance(sha256, str)):
        raise TypeError("agent and observations_sha256 describe the episode")
    return Trace(config, actions, episode["seed"], float(score), rooms, agent, sha256)


def episode_config(config: Config) -> Config:
    """The config of one environment alone, in this process."""
    env = replace(config.env, num_envs=1, workers=0, backend="auto", translate=False)
    return replace(config, env=env, minibatches=1, device="cpu", ranks=1, bootstrap_truncated=False)


def unpack(data: dict[str, Any], frame_skip: int) -> np.ndarray:
    """The actions. Nothing is unpacked before its size is known to be small."""
    kind, shape = np.dtype(data["type"]), tuple(data["shape"])
    if kind.kind not in "uif" or not shape or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"actions of type {data['type']!r:.20} and shape {shape!r:.60}")
    size = kind.itemsize * math.prod(shape[1:])
    if not 0 < shape[0] <= MAX_STEPS or shape[0] * frame_skip > MAX_FRAMES or not 0 < size <= MAX_ACTION_BYTES:
        raise ValueError(f"an episode has 1 to {MAX_STEPS:,} steps and {MAX_FRAMES:,} frames; shape {shape!r:.60}")
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(base64.b64decode(data["zlib"], validate=True), size * shape[0] + 1)
    except zlib.error as error:
        raise ValueError(f"its actions cannot be unpacked: {error}") from error
    if len(raw) != size * shape[0]:
        raise ValueError(f"{len(raw):,} bytes of actions instead of {size * shape[0]:,}")
    return np.frombuffer(raw, kind).reshape(shape)


def check_actions(actions: np.ndarray, spec: EnvSpec) -> None:
    """Refuse actions that the environment does not have."""
    action = spec.action
    fits = actions.shape[1:] == action.shape and (actions.dtype.kind == "f") == (action.kind == "continuous")
    if fits and action.kind == "continuous":
        fits = bool(np.isfinite(actions).all())
    elif fits:
        fits = bool(((actions >= 0) & (actions < np.array(action.sizes))).all())
    if not fits:
        raise UserError(f"the trace has actions that {spec.id} does not have; make it again: rnd evaluate --trace")


def weights_hash(policy: nn.Module) -> str:
    """SHA-256 of names, shapes and values of a policy's weights, the same on every device and in every file."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(policy.state_dict().items()):
        values = tensor.detach().cpu().contiguous().numpy()
        hashed.update(f"{name} {values.dtype.str} {values.shape}".encode())
        hashed.update(values.tobytes())
    return hashed.hexdigest()
