"""From the observations of Gymnasium environments to those that the networks read: images or vectors.

Images become 84x84 grey frames as in Atari. Everything else becomes one float vector: discrete values and the cells of
MiniGrid's symbolic view one-hot, texts left out, dictionaries and tuples concatenated.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from rnd.envs.spec import ObservationSpec
from rnd.errors import RunError, UserError

SCREEN = 84
SMALLEST_IMAGE = 36
"""Images with a shorter side are read as vectors: they are too small for the convolutions."""
MINIGRID_CELL = (11, 6, 4)
"""Kinds of objects, colours, and states (of doors, or directions) of a cell."""

Encoder = Callable[[Any, np.ndarray], None]
"""Writes an observation, or a part of one, into an array. Raises WrongObservationError where it is not of its space."""


class WrongObservationError(RunError):
    """An observation that is not of its space. Who made it, and when, is added where that is known."""


def make_encoder(space: Any, env_id: str) -> tuple[ObservationSpec, Encoder]:
    """The spec and the encoder of a Gymnasium observation space."""
    if is_image(space):
        return ObservationSpec("image", (SCREEN, SCREEN)), image_encoder(space.shape)
    low, high, write = make_part(space, env_id)
    if not len(low):
        raise UserError(f"{env_id} has no observation that a network can read; its observation space is {space}")
    bounds = (tuple(low.tolist()), tuple(high.tolist())) if np.isfinite([low, high]).any() else ((), ())
    return ObservationSpec("vector", (len(low),), *bounds), write


def is_image(space: Any) -> bool:
    shape: tuple[int, ...] = getattr(space, "shape", None) or ()
    big = len(shape) in (2, 3) and min(shape[:2]) >= SMALLEST_IMAGE
    return big and getattr(space, "dtype", None) == np.uint8 and (len(shape) == 2 or shape[2] in (1, 3, 4))


def image_encoder(shape: tuple[int, ...]) -> Encoder:
    """Grey, 84x84, area interpolation."""
    import cv2

    def write(obs: Any, out: np.ndarray) -> None:
        obs = checked(obs, shape, "u")
        if obs.dtype != np.uint8:
            raise WrongObservationError(f"its observation has the type {obs.dtype} instead of uint8")
        if obs.ndim == 3:
            obs = obs[..., 0] if obs.shape[2] == 1 else cv2.cvtColor(obs[..., :3], cv2.COLOR_RGB2GRAY)
        cv2.resize(obs, (SCREEN, SCREEN), dst=out, interpolation=cv2.INTER_AREA)

    return write


def checked(obs: Any, shape: tuple[int, ...], kinds: str) -> np.ndarray:
    """An observation as an array, which must have this shape, and numbers of one of these kinds (as in numpy)."""
    array = np.asarray(obs)
    if array.shape != shape:
        raise WrongObservationError(f"its observation has the shape {array.shape} instead of {shape}")
    if array.dtype.kind not in kinds:
        wanted = "numbers" if "f" in kinds else "integers"
        raise WrongObservationError(f"its observation has the type {array.dtype}, where its space has {wanted}")
    return array


Part = tuple[np.ndarray, np.ndarray, Encoder]
"""A part of an observation as a vector: lower bounds, upper bounds, and the function that writes it."""


def make_part(space: Any, env_id: str) -> Part:
    """A space as a vector; a composite space consists of parts."""
    kind = type(space).__name__
    if kind == "Dict":
        return concatenated({name: make_part(part, env_id) for name, part in space.spaces.items()})
    if kind == "Tuple":
        return concatenated({i: make_part(part, env_id) for i, part in enumerate(space.spaces)})
    if kind in ("MissionSpace", "Text"):
        return concatenated({})
    if kind == "Discrete":
        return discrete(int(space.n), int(space.start))
    if kind == "MultiDiscrete":
        first = np.broadcast_to(getattr(space, "start", 0), space.shape)
        return one_hot(space.nvec, first)
    if kind == "Box" and env_id.startswith(("MiniGrid-", "BabyAI-")) and space.dtype == np.uint8:
        return one_hot(np.broadcast_to(MINIGRID_CELL, space.shape), np.zeros(space.shape, int))
    if kind == "Box":
        return numbers(space.shape, space.dtype, space.low.reshape(-1), space.high.reshape(-1))
    if kind == "MultiBinary":
        size = int(np.prod(space.shape))
        return numbers(space.shape, space.dtype, np.zeros(size), np.ones(size))
    raise UserError(
        f"{env_id} has {kind} observations; Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are supported"
    )


def numbers(shape: tuple[int, ...], dtype: Any, low: np.ndarray, high: np.ndarray) -> Part:
    """Numbers as they are. Their bounds are checked for all environments together (`StepCheck`).

    Bounds of floats are rough in many environments, so only what is off by more than their distance is refused."""
    kinds = "biuf" if np.dtype(dtype).kind == "f" else "biu"
    low, high = low.astype(np.float64), high.astype(np.float64)
    slack = high - low if "f" in kinds else 0

    def write(obs: Any, out: np.ndarray) -> None:
        out[:] = checked(obs, shape, kinds).reshape(-1)

    return low - slack, high + slack, write


def discrete(choices: int, first: int) -> Part:
    """One discrete value, one-hot."""

    def write(obs: Any, out: np.ndarray) -> None:
        try:
            chosen = index(obs) - first
        except TypeError:
            raise WrongObservationError(f"its observation {obs!r} is no integer") from None
        if not 0 <= chosen < choices:
            raise WrongObservationError(f"its observation {obs} is not between {first} and {first + choices - 1}")
        out[:] = 0
        out[chosen] = 1

    return *unbounded(choices), write


def one_hot(choices: np.ndarray, first: np.ndarray) -> Part:
    """Several discrete values, each one-hot."""
    shape, size, last = choices.shape, int(choices.sum()), first + choices - 1
    ones = np.cumsum(choices) - choices.reshape(-1) - first.reshape(-1)

    def write(obs: Any, out: np.ndarray) -> None:
        values = checked(obs, shape, "biu")
        if np.count_nonzero((values < first) | (values > last)):
            raise WrongObservationError("its observation has integers outside its space")
        out[:] = 0
        out[ones + values.reshape(-1)] = 1

    return *unbounded(size), write


def unbounded(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of components that need no check after they were written."""
    return np.full(size, -np.inf), np.full(size, np.inf)


def concatenated(parts: dict[Any, Part]) -> Part:
    """Parts by name or position, one after the other."""
    lows, highs = ([np.zeros(0), *(part[k] for part in parts.values())] for k in (0, 1))
    ends = np.cumsum([len(low) for low in lows]).tolist()
    slices = [(name, part[2], slice(*ends[k : k + 2])) for k, (name, part) in enumerate(parts.items()) if len(part[0])]

    def write(obs: Any, out: np.ndarray) -> None:
        for name, write_part, rows in slices:
            try:
                part = obs[name]
            except (KeyError, IndexError, TypeError):
                raise WrongObservationError(f"its observation has no part {name!r}") from None
            write_part(part, out[rows])

    return np.concatenate(lows), np.concatenate(highs), write
