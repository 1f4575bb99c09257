"""From what a Gymnasium environment shows to one of the two things that the networks read.

Images become 84x84 grey frames as in Atari. Everything else becomes one float vector: discrete values one-hot,
MiniGrid's symbolic view scaled to about [0, 1], texts left out, dictionaries and tuples concatenated.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rnd.envs.spec import ObservationSpec
from rnd.errors import UserError

SCREEN = 84
SMALLEST_IMAGE = 36
"""Pictures smaller than this on a side are read as vectors: the convolutions have no room in them."""


class Encoder(Protocol):
    """Writes one observation into a row of the batch."""

    spec: ObservationSpec

    def __call__(self, obs: Any, out: np.ndarray) -> None: ...


def make_encoder(space: Any, env_id: str) -> Encoder:
    """The encoder of a Gymnasium observation space."""
    if is_image(space):
        return ImageEncoder()
    return VectorEncoder(space, env_id)


def is_image(space: Any) -> bool:
    shape: tuple[int, ...] = getattr(space, "shape", None) or ()
    big = len(shape) in (2, 3) and min(shape[:2]) >= SMALLEST_IMAGE
    return big and getattr(space, "dtype", None) == np.uint8 and (len(shape) == 2 or shape[2] in (1, 3, 4))


class ImageEncoder:
    """Grey, 84x84, area interpolation."""

    spec = ObservationSpec("image", (SCREEN, SCREEN))

    def __call__(self, obs: np.ndarray, out: np.ndarray) -> None:
        import cv2

        if obs.ndim == 3:
            obs = obs[..., 0] if obs.shape[2] == 1 else cv2.cvtColor(obs[..., :3], cv2.COLOR_RGB2GRAY)
        cv2.resize(obs, (SCREEN, SCREEN), dst=out, interpolation=cv2.INTER_AREA)


class VectorEncoder:
    """Everything that is not a picture, as one float vector."""

    def __init__(self, space: Any, env_id: str):
        self.space = space
        size = _size(space, env_id)
        if size == 0:
            raise UserError(f"{env_id} shows nothing that a network can read (its observation space is {space})")
        self.spec = ObservationSpec("vector", (size,))

    def __call__(self, obs: Any, out: np.ndarray) -> None:
        end = _write(self.space, obs, out, 0)
        assert end == out.size


def _size(space: Any, env_id: str) -> int:
    kind = type(space).__name__
    if kind == "Dict":
        return sum(_size(part, env_id) for part in space.spaces.values())
    if kind == "Tuple":
        return sum(_size(part, env_id) for part in space.spaces)
    if kind == "Box":
        return int(np.prod(space.shape))
    if kind == "Discrete":
        return int(space.n)
    if kind == "MultiDiscrete":
        return int(space.nvec.sum())
    if kind == "MultiBinary":
        return int(np.prod(space.shape))
    if kind in ("MissionSpace", "Text"):
        return 0
    raise UserError(f"{env_id} shows a {kind}; Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are supported")


def _write(space: Any, obs: Any, out: np.ndarray, at: int) -> int:
    """Write `obs` to `out[at:]`; returns where it ends."""
    kind = type(space).__name__
    if kind == "Dict":
        for name, part in space.spaces.items():
            at = _write(part, obs[name], out, at)
        return at
    if kind == "Tuple":
        for part, value in zip(space.spaces, obs, strict=True):
            at = _write(part, value, out, at)
        return at
    if kind in ("MissionSpace", "Text"):
        return at
    if kind == "Discrete":
        end = at + int(space.n)
        out[at:end] = 0
        out[at + int(obs) - int(space.start)] = 1
        return end
    if kind == "MultiDiscrete":
        values = (np.asarray(obs) - getattr(space, "start", 0)).reshape(-1)
        for n, value in zip(space.nvec.reshape(-1), values, strict=True):
            out[at : at + n] = 0
            out[at + int(value)] = 1
            at += int(n)
        return at
    values = np.asarray(obs, np.float32).reshape(-1)
    # Symbolic pictures (MiniGrid) hold object, colour and state numbers up to 10.
    out[at : at + values.size] = values / 10 if getattr(space, "dtype", None) == np.uint8 else values
    return at + values.size
