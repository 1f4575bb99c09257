"""From the observations of Gymnasium environments to those that the networks read: images or vectors.

Images become 84x84 grey frames as in Atari. Everything else becomes one float vector: discrete values and the cells of
MiniGrid's symbolic view one-hot, texts left out, dictionaries and tuples concatenated.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rnd.envs.spec import ObservationSpec
from rnd.errors import UserError

SCREEN = 84
SMALLEST_IMAGE = 36
"""Images with a shorter side are read as vectors: they are too small for the convolutions."""


class Encoder(Protocol):
    """Writes one observation into a row of the batch."""

    spec: ObservationSpec

    def __call__(self, obs: Any, out: np.ndarray) -> None: ...


def make_encoder(space: Any, env_id: str) -> Encoder:
    """The encoder of a Gymnasium observation space."""
    return ImageEncoder() if is_image(space) else VectorEncoder(space, env_id)


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
    """Everything that is not an image, as one float vector."""

    def __init__(self, space: Any, env_id: str):
        self.part = make_part(space, env_id)
        if self.part.size == 0:
            raise UserError(f"{env_id} has no observation that a network can read; its observation space is {space}")
        self.spec = ObservationSpec("vector", (self.part.size,))

    def __call__(self, obs: Any, out: np.ndarray) -> None:
        self.part.write(obs, out)


class Part(Protocol):
    """A part of an observation: `write` writes it as `size` numbers."""

    size: int

    def write(self, obs: Any, out: np.ndarray) -> None: ...


def make_part(space: Any, env_id: str) -> Part:
    """The encoder of one space; a composite space consists of the parts of its spaces."""
    kind = type(space).__name__
    if kind == "Dict":
        return Group([(name, make_part(part, env_id)) for name, part in space.spaces.items()])
    if kind == "Tuple":
        return Group([(i, make_part(part, env_id)) for i, part in enumerate(space.spaces)])
    if kind in ("MissionSpace", "Text"):
        return Group([])
    if kind == "Discrete":
        return OneHot(np.array([space.n]), int(space.start))
    if kind == "MultiDiscrete":
        return OneHot(space.nvec.reshape(-1), np.asarray(getattr(space, "start", 0)).reshape(-1))
    if kind == "Box" and env_id.startswith(("MiniGrid-", "BabyAI-")) and space.dtype == np.uint8:
        cells = int(np.prod(space.shape[:2]))
        return OneHot(np.tile(MINIGRID_CELL, cells), 0)
    if kind in ("Box", "MultiBinary"):
        return Numbers(int(np.prod(space.shape)))
    raise UserError(
        f"{env_id} has {kind} observations; Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are supported"
    )


MINIGRID_CELL = (11, 6, 4)
"""Kinds of objects, colours, and states (of doors, or directions) of a cell."""


class Numbers:
    """Numbers as they are."""

    def __init__(self, size: int):
        self.size = size

    def write(self, obs: Any, out: np.ndarray) -> None:
        out[:] = np.asarray(obs, np.float32).reshape(-1)


class OneHot:
    """Several discrete values, each one-hot."""

    def __init__(self, choices: np.ndarray, first: int | np.ndarray):
        self.size = int(choices.sum())
        self._ones = np.cumsum(choices) - choices - first

    def write(self, obs: Any, out: np.ndarray) -> None:
        out[:] = 0
        out[self._ones + np.asarray(obs).reshape(-1)] = 1


class Group:
    """Parts by name or position, concatenated."""

    def __init__(self, parts: list[tuple[Any, Part]]):
        ends = np.cumsum([part.size for _, part in parts]).tolist()
        self.size = ends[-1] if ends else 0
        self._parts = [(name, part, slice(e - part.size, e)) for (name, part), e in zip(parts, ends, strict=True)]

    def write(self, obs: Any, out: np.ndarray) -> None:
        for name, part, at in self._parts:
            if part.size:
                part.write(obs[name], out[at])
