"""From the observations of Gymnasium environments to those that the networks read: images or vectors.

Images become 84x84 grey frames as in Atari. Everything else becomes one float vector: discrete values and the cells of
MiniGrid's symbolic view one-hot, texts left out, dictionaries and tuples concatenated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rnd.envs.spec import ObservationSpec
from rnd.errors import UserError

SCREEN = 84
SMALLEST_IMAGE = 36
"""Images with a shorter side are read as vectors: they are too small for the convolutions."""
MINIGRID_CELL = (11, 6, 4)
"""Kinds of objects, colours, and states (of doors, or directions) of a cell."""

Encoder = Callable[[Any, np.ndarray], None]
"""Writes an observation, or a part of one, into an array."""


def make_encoder(space: Any, env_id: str) -> tuple[ObservationSpec, Encoder]:
    """The spec and the encoder of a Gymnasium observation space."""
    if is_image(space):
        return ObservationSpec("image", (SCREEN, SCREEN)), write_image
    size, write = make_part(space, env_id)
    if size == 0:
        raise UserError(f"{env_id} has no observation that a network can read; its observation space is {space}")
    return ObservationSpec("vector", (size,)), write


def is_image(space: Any) -> bool:
    shape: tuple[int, ...] = getattr(space, "shape", None) or ()
    big = len(shape) in (2, 3) and min(shape[:2]) >= SMALLEST_IMAGE
    return big and getattr(space, "dtype", None) == np.uint8 and (len(shape) == 2 or shape[2] in (1, 3, 4))


def write_image(obs: np.ndarray, out: np.ndarray) -> None:
    """Grey, 84x84, area interpolation."""
    import cv2

    if obs.ndim == 3:
        obs = obs[..., 0] if obs.shape[2] == 1 else cv2.cvtColor(obs[..., :3], cv2.COLOR_RGB2GRAY)
    cv2.resize(obs, (SCREEN, SCREEN), dst=out, interpolation=cv2.INTER_AREA)


def make_part(space: Any, env_id: str) -> tuple[int, Encoder]:
    """The size of a space as a vector, and the function that writes it; a composite space consists of parts."""
    kind = type(space).__name__
    if kind == "Dict":
        return concatenated([(name, *make_part(part, env_id)) for name, part in space.spaces.items()])
    if kind == "Tuple":
        return concatenated([(i, *make_part(part, env_id)) for i, part in enumerate(space.spaces)])
    if kind in ("MissionSpace", "Text"):
        return concatenated([])
    if kind == "Discrete":
        return one_hot(np.array([space.n]), int(space.start))
    if kind == "MultiDiscrete":
        return one_hot(space.nvec.reshape(-1), np.asarray(getattr(space, "start", 0)).reshape(-1))
    if kind == "Box" and env_id.startswith(("MiniGrid-", "BabyAI-")) and space.dtype == np.uint8:
        return one_hot(np.tile(MINIGRID_CELL, int(np.prod(space.shape[:2]))), 0)
    if kind in ("Box", "MultiBinary"):
        return int(np.prod(space.shape)), write_numbers
    raise UserError(
        f"{env_id} has {kind} observations; Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are supported"
    )


def write_numbers(obs: Any, out: np.ndarray) -> None:
    out[:] = np.asarray(obs, np.float32).reshape(-1)


def one_hot(choices: np.ndarray, first: int | np.ndarray) -> tuple[int, Encoder]:
    """Several discrete values, each one-hot."""
    ones = np.cumsum(choices) - choices - first

    def write(obs: Any, out: np.ndarray) -> None:
        out[:] = 0
        out[ones + np.asarray(obs).reshape(-1)] = 1

    return int(choices.sum()), write


def concatenated(parts: list[tuple[Any, int, Encoder]]) -> tuple[int, Encoder]:
    """Parts by name or position (name, size, function), one after the other."""
    ends = np.cumsum([size for _, size, _ in parts], dtype=int).tolist()

    def write(obs: Any, out: np.ndarray) -> None:
        for (name, size, write_part), end in zip(parts, ends, strict=True):
            if size:
                write_part(obs[name], out[end - size : end])

    return ends[-1] if ends else 0, write
