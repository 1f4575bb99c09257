"""Writers of observations: an image as grey frames of 84x84, glyphs as colours, all else as numbers in a vector.

`rnd.envs.observations` decides which entry of an observation is which.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

import numpy as np

from rnd.config.presets import is_minigrid
from rnd.envs.spec import SCREEN, vector_of
from rnd.envs.splitmix import mix
from rnd.foundation.errors import RunError, UserError

MINIGRID_CELL = (11, 6, 4)
"""Kinds of objects, colours, and states (of doors, or directions) of a cell."""
GLYPHS, GLYPH_FRAMES, MAX_GLYPH = "glyphs", 4, 2**15 - 1
"""The layout of a grid of NetHack's glyphs, the random bytes of each, and the largest: there is a table of them."""
SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
"""Spaces of observations and actions; of observations Text too, which is left out."""
Encoder = Callable[[Any, np.ndarray], None]
"""Writes an observation, or one entry, into an array. Raises WrongObservationError where it is not of its space."""
Path = tuple[Any, ...]
"""Names and positions that lead to an entry of an observation."""


class WrongObservationError(RunError):
    """An observation outside its space. The caller adds the environment and the step to the message."""


def mixed_writer(images: list[ImageEncoder], write_vector: Encoder) -> Encoder:
    """Writes images and a vector to one row of bytes."""
    ends = np.cumsum([image.frames for image in images]).tolist()
    pixels = ends[-1] * SCREEN * SCREEN

    def write(obs: Any, out: np.ndarray) -> None:
        frames, numbers = out[:pixels].reshape(-1, SCREEN, SCREEN), vector_of(out, pixels)
        for image, end in zip(images, ends, strict=True):
            image.write(obs, frames[end - image.frames : end])
        write_vector(obs, numbers)
        numbers += 0.0  # the two zeros have the same bytes: they are one observation to counts and first visits

    return write


def bounds_of(space: Any) -> tuple[float, float]:
    return float(space.low.min()), float(space.high.max())


def channels_per_frame(layout: str, channels: int) -> int:
    """Channels of one frame: 12 are four frames of three colours, 8 are grey frames. Four are red, green,
    blue and opacity where channels are last, and grey frames (frame stacks are made so) where they are first."""
    if channels % 3 == 0:
        return 3
    return 4 if channels == 4 and layout != "CHW" else 1


class ImageEncoder(NamedTuple):
    """Writes an entry of an observation as frames of 84x84: one, or several that are one image's channels."""

    frames: int
    write: Encoder


def image_encoder(space: Any, path: Path, layout: str) -> ImageEncoder:
    """The newest frame of an image, grey, 84x84, area interpolation; or a grid of glyphs."""
    if layout == GLYPHS:
        return glyph_encoder(space, path)
    import cv2

    shape, (low, high) = space.shape, bounds_of(space)
    axes = [layout.index(axis) for axis in "SHWC" if axis in layout]
    channels = channels_per_frame(layout, dict(zip(layout, shape, strict=True)).get("C", 1))

    def write(obs: Any, out: np.ndarray) -> None:
        frame = checked(value_at(obs, path), shape, "u" if space.dtype == np.uint8 else "biuf").transpose(axes)
        if "S" in layout:
            frame = frame[-1]
        if "C" in layout:
            frame = frame[..., -channels:][..., :3]
        frame = to_bytes(frame, low, high) if space.dtype.kind == "f" else frame
        if frame.dtype != np.uint8:
            raise WrongObservationError(f"its observation has the type {frame.dtype} instead of uint8")
        frame = np.ascontiguousarray(frame)
        if frame.ndim == 3:
            frame = frame[..., 0] if channels == 1 else cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        cv2.resize(frame, (SCREEN, SCREEN), dst=out[0], interpolation=cv2.INTER_AREA)

    return ImageEncoder(1, write)


def glyph_encoder(space: Any, path: Path) -> ImageEncoder:
    """Glyphs are names, not quantities: each has random bytes of its own, the same in every run. Cells are enlarged by
    whole numbers, so that none is blurred, and what is left of the image is 0."""
    largest = int(space.high.max())
    hashes = np.array([mix(glyph + 1) for glyph in range(largest + 1)], "<u8")
    colours = np.ascontiguousarray(hashes.view(np.uint8).reshape(-1, 8)[:, :GLYPH_FRAMES].T)
    height, width = (SCREEN // side for side in space.shape)

    def write(obs: Any, out: np.ndarray) -> None:
        glyphs = checked(value_at(obs, path), space.shape, "iu")
        if glyphs.min() < 0 or glyphs.max() > largest:
            raise WrongObservationError("its observation has integers outside its space")
        cells = colours[:, glyphs].repeat(height, axis=1).repeat(width, axis=2)
        out[:] = 0
        out[:, : cells.shape[1], : cells.shape[2]] = cells

    return ImageEncoder(GLYPH_FRAMES, write)


def to_bytes(frame: np.ndarray, low: float, high: float) -> np.ndarray:
    """A float image as uint8. As for vectors, a value is refused if it is outside the bounds by more than their
    distance."""
    scaled = (frame - low) * (255 / (high - low))
    if not (scaled.min() >= -255 and scaled.max() <= 510):  # nor NaN
        raise WrongObservationError(f"its image has numbers that are NaN or far outside {low:g} to {high:g}")
    pixels: np.ndarray = np.rint(scaled.clip(0, 255)).astype(np.uint8)
    return pixels


def value_at(obs: Any, path: Path) -> Any:
    """The entry of an observation at `path`."""
    for name in path:
        try:
            obs = obs[name]
        except (KeyError, IndexError, TypeError):
            raise WrongObservationError(f"its observation has no entry {name!r}") from None
    return obs


def checked(obs: Any, shape: tuple[int, ...], kinds: str) -> np.ndarray:
    """An observation as an array, which must have this shape, and numbers of one of these kinds (as in numpy)."""
    array = np.asarray(obs)
    if array.shape != shape:
        raise WrongObservationError(f"its observation has the shape {array.shape} instead of {shape}")
    if array.dtype.kind not in kinds:
        wanted = "numbers" if "f" in kinds else "integers"
        raise WrongObservationError(f"its observation has the type {array.dtype}, where its space has {wanted}")
    return array


class VectorEncoder(NamedTuple):
    """A space as a vector: its bounds, a mask of the components that are 0 or 1, and the function that writes it."""

    low: np.ndarray
    high: np.ndarray
    one_hot: np.ndarray
    write: Encoder


def vector_encoder(space: Any, env_id: str) -> VectorEncoder:
    """A space that is no dictionary or tuple as a vector."""
    kind = type(space).__name__
    if kind == "Discrete":
        return discrete(int(space.n), int(space.start))
    if kind == "MultiDiscrete":
        first = np.broadcast_to(getattr(space, "start", 0), space.shape)
        return one_hot(space.nvec, first)
    if kind == "Box" and is_minigrid(env_id) and space.dtype == np.uint8:
        return one_hot(np.broadcast_to(MINIGRID_CELL, space.shape), np.zeros(space.shape, int))
    if kind == "Box":
        return numbers(space.shape, space.dtype, space.low.reshape(-1), space.high.reshape(-1))
    if kind == "MultiBinary":
        size = int(np.prod(space.shape))
        return numbers(space.shape, space.dtype, np.zeros(size), np.ones(size), binary=True)
    raise UserError(f"{env_id} has {kind} observations; {SUPPORTED} are supported: wrap it so that it shows those")


def numbers(
    shape: tuple[int, ...], dtype: Any, low: np.ndarray, high: np.ndarray, binary: bool = False
) -> VectorEncoder:
    """Numbers as they are. Their bounds are checked for all environments together (`StepCheck`).

    Bounds of floats are rough in many environments, so only what is off by more than their distance is refused."""
    kinds = "biuf" if np.dtype(dtype).kind == "f" else "biu"
    low, high = low.astype(np.float64), high.astype(np.float64)
    slack = high - low if "f" in kinds else 0

    def write(obs: Any, out: np.ndarray) -> None:
        out[:] = checked(obs, shape, kinds).reshape(-1)

    return VectorEncoder(low - slack, high + slack, np.full(len(low), binary), write)


def discrete(choices: int, first: int) -> VectorEncoder:
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

    return VectorEncoder(*unbounded(choices), np.full(choices, True), write)


def one_hot(choices: np.ndarray, first: np.ndarray) -> VectorEncoder:
    """Several discrete values, each one-hot."""
    shape, size, last = choices.shape, int(choices.sum()), first + choices - 1
    ones = np.cumsum(choices) - choices.reshape(-1) - first.reshape(-1)

    def write(obs: Any, out: np.ndarray) -> None:
        values = checked(obs, shape, "biu")
        if np.count_nonzero((values < first) | (values > last)):
            raise WrongObservationError("its observation has integers outside its space")
        out[:] = 0
        out[ones + values.reshape(-1)] = 1

    return VectorEncoder(*unbounded(size), np.full(size, True), write)


def unbounded(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of components that need no check after they were written."""
    return np.full(size, -np.inf), np.full(size, np.inf)


def concatenated(encoders: dict[Path, VectorEncoder]) -> VectorEncoder:
    """Encoders of entries, one after the other."""
    if set(encoders) == {()}:
        return encoders[()]
    none = np.zeros(0)
    low = np.concatenate([none, *(encoder.low for encoder in encoders.values())])
    high = np.concatenate([none, *(encoder.high for encoder in encoders.values())])
    choices = np.concatenate([none.astype(bool), *(encoder.one_hot for encoder in encoders.values())])
    ends = np.cumsum([len(encoder.low) for encoder in encoders.values()], dtype=int).tolist()
    slices = [
        (path, encoder.write, slice(end - len(encoder.low), end))
        for (path, encoder), end in zip(encoders.items(), ends, strict=True)
        if len(encoder.low)
    ]

    def write(obs: Any, out: np.ndarray) -> None:
        for path, write_part, rows in slices:
            write_part(value_at(obs, path), out[rows])

    return VectorEncoder(low, high, choices, write)
