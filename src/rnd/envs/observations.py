"""From the observations of Gymnasium environments to those that the networks read: images, vectors, or both.

Images become 84x84 grey frames as in Atari, whatever their layout and numbers are; several are channels of one. What is
no image becomes one float vector: discrete values and the cells of MiniGrid's symbolic view one-hot, texts left out,
dictionaries and tuples concatenated. An observation that has both is one row of bytes (`rnd.envs.spec`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import index
from typing import Any, NamedTuple

import numpy as np

from rnd.config.config import Reads
from rnd.config.presets import is_minigrid
from rnd.envs.spec import SCREEN, ObservationSpec, vector_of
from rnd.envs.splitmix import mix
from rnd.foundation.errors import RunError, UserError

LAYOUTS = ("HW", "HWC", "CHW", "SHWC", "SCHW", "HWCS")
"""Axes of an image: stacked frames (S, the newest last), height, width, channels."""
MIN_SIDE, MIN_ICON = 36, 8
"""Sides in pixels. A Box with sides of at least the first is an image; a smaller one only if its channels and range
leave no doubt, and none below the second."""
MAX_CHANNELS = 16
"""More channels, or stacked frames, than this are no image."""
LONG_VECTOR = 4096
"""Longer vectors get a line of advice at the start."""
MINIGRID_CELL = (11, 6, 4)
"""Kinds of objects, colours, and states (of doors, or directions) of a cell."""

GLYPHS, GLYPH_FRAMES, MAX_GLYPH = "glyphs", 4, 2**15 - 1
"""The layout of a grid of NetHack's glyphs, the random bytes of each, and the largest: there is a table of them."""
GLYPH_COPIES = ("chars", "colors", "specials", "screen_descriptions", "tty_chars", "tty_colors", "tty_cursor")
NETHACK_TEXTS = ("message", "inv_strs")
"""Entries that are not read where glyphs are, nor MiniHack's crops of them: they tell the same in another form, or are
texts."""

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
"""Spaces of observations and actions; of observations Text too, which is left out."""

Encoder = Callable[[Any, np.ndarray], None]
"""Writes an observation, or one entry, into an array. Raises WrongObservationError where it is not of its space."""


Path = tuple[Any, ...]
"""Names and positions that lead to an entry of an observation."""


class WrongObservationError(RunError):
    """An observation outside its space. The caller adds the environment and the step to the message."""


def make_encoder(space: Any, env_id: str, reads: Reads = "all") -> tuple[ObservationSpec, Encoder]:
    """The spec and the encoder of a Gymnasium observation space."""
    parts = parts_of(space, env_id, reads)
    images = [image_encoder(leaf, path, parts.layouts[path]) for path, leaf in parts.images.items()]
    low, high, one_hot, write = concatenated({p: vector_encoder(leaf, env_id) for p, leaf in parts.vector.items()})
    if not images and not len(low):
        raise UserError(f"{env_id} has no observation that a network can read; its observation space is {space}")
    notes = (*unread_notes(parts, env_id), *image_notes(parts, env_id), *long_note(len(low), space, env_id))
    frames = sum(image.frames for image in images)
    if frames == 1 and not len(low):
        return ObservationSpec("image", (SCREEN, SCREEN), notes=notes), lambda obs, out: images[0].write(obs, out[None])
    bounds = (tuple(low.tolist()), tuple(high.tolist())) if np.isfinite([low, high]).any() else ((), ())
    choices = tuple(one_hot.tolist()) if one_hot.any() else ()
    if not images:
        return ObservationSpec("vector", (len(low),), *bounds, choices, notes), write
    size = frames * SCREEN * SCREEN + len(low) * np.dtype(np.float32).itemsize
    return ObservationSpec("mixed", (size,), *bounds, choices, notes, frames), mixed_writer(images, write)


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


class Parts(NamedTuple):
    """What of an observation is read as images, what as a vector, and what is not read."""

    images: dict[Path, Any]
    layouts: dict[Path, str]
    """The axes of every image; GLYPHS for a grid of NetHack's glyphs."""
    vector: dict[Path, Any]
    dropped: list[Path]
    """Entries beside an image that is read alone, and those of NetHack that are not read beside glyphs."""
    texts: list[Path]
    """Texts; MiniGrid's mission, a space of its own, is none of them."""


def parts_of(space: Any, env_id: str, reads: Reads = "all") -> Parts:
    """Take a space apart. The order is that of the space."""
    entries = dict(leaves_of(space))
    leaves = {path: leaf for path, leaf in entries.items() if not is_text(leaf)}
    kinds = {path: type(leaf).__name__ for path, leaf in entries.items()}
    grid = is_minigrid(env_id) or "MissionSpace" in kinds.values()
    layouts = {path: layout for path, leaf in leaves.items() if (layout := layout_of(leaf, grid))}
    nethack = {path: GLYPHS for path, leaf in leaves.items() if is_glyphs(path, leaf)}
    dropped: list[Path] = []
    if reads == "all" and nethack:
        names = {path: str(path[-1]).removesuffix("_crop") for path in leaves}
        dropped = [path for path, name in names.items() if name in GLYPH_COPIES + NETHACK_TEXTS]
        layouts = {path: layout for path, layout in (layouts | nethack).items() if path not in dropped}
    if reads == "vector":
        layouts = {}
    elif reads == "image" and layouts:
        first = next(iter(layouts))
        layouts, dropped = {first: layouts[first]}, [path for path in leaves if path != first]
    images = {path: leaf for path, leaf in leaves.items() if path in layouts}
    vector = {path: leaf for path, leaf in leaves.items() if path not in images and path not in dropped}
    return Parts(images, layouts, vector, dropped, [path for path, kind in kinds.items() if kind == "Text"])


def unread_notes(parts: Parts, env_id: str) -> list[str]:
    notes = [f"{env_id}: the networks do not see its text {names_of(parts.texts)}"] * bool(parts.texts)
    if parts.dropped and GLYPHS in parts.layouts.values():
        notes.append(f"{env_id}: the networks do not see its {names_of(parts.dropped)}: texts, or what glyphs tell too")
    elif parts.dropped:
        notes.append(f"{env_id}: the networks see its image {names_of(parts.images)}, not {names_of(parts.dropped)}")
    return notes


def image_notes(parts: Parts, env_id: str) -> list[str]:
    notes = [note for path, leaf in parts.images.items() for note in stack_note(leaf, parts.layouts[path], env_id)]
    if len(parts.images) > 1:
        notes.insert(0, f"{env_id}: its images {names_of(parts.images)} are channels of one, {SCREEN}x{SCREEN} each")
    return notes


def long_note(size: int, space: Any, env_id: str) -> list[str]:
    if size <= LONG_VECTOR:
        return []
    advice = "if it is an image, declare a Box(0, 255, (H, W, 3), uint8); if not, shorten it with a wrapper"
    if parts_of(space, env_id).images:
        advice = "without --policy mlp it is read as an image"
    return [f"{env_id}: an observation of {size:,} numbers makes a large, slow network; {advice}"]


def leaves_of(space: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The spaces inside dictionaries and tuples, or the space itself."""
    if not is_composite(space):
        yield path, space
    for name, subspace in subspaces(space):
        yield from leaves_of(subspace, (*path, name))


def is_composite(space: Any) -> bool:
    """Whether a space has subspaces that are all there at every step: not OneOf."""
    return type(space).__name__ in ("Dict", "Tuple")


def subspaces(space: Any) -> list[tuple[Any, Any]]:
    """Names or positions of the subspaces of a composite space, and the subspaces; none of another."""
    if not is_composite(space):
        return []
    return [*(space.spaces.items() if isinstance(space.spaces, Mapping) else enumerate(space.spaces))]


def names_of(paths: Iterable[Path]) -> str:
    return ", ".join(".".join(map(str, path)) for path in paths)


def is_text(space: Any) -> bool:
    return type(space).__name__ in ("MissionSpace", "Text")


def layout_of(space: Any, grid: bool) -> str | None:
    """The axes of an image, or None for what is none. `grid`: small boxes are the symbolic cells of MiniGrid.

    A float image needs finite bounds: they say which numbers are black and white."""
    if type(space).__name__ != "Box" or not (space.dtype == np.uint8 or space.dtype.kind == "f"):
        return None
    low, high = bounds_of(space)
    if space.dtype != np.uint8 and not -np.inf < low < high < np.inf:
        return None
    certain = not grid and low == 0 and (high == 255 or (high == 1 and space.dtype != np.uint8))
    for layout in LAYOUTS:
        if len(layout) != len(space.shape):
            continue
        size = dict(zip(layout, space.shape, strict=True))
        plain = size.get("C", 1) in (1, 3, 4)
        stacked = size["S"] <= MAX_CHANNELS and plain if "S" in size else size.get("C", 1) <= MAX_CHANNELS
        icon = certain and plain and "C" in size
        if stacked and min(size["H"], size["W"]) >= (MIN_ICON if icon else MIN_SIDE):
            return layout
    return None


def bounds_of(space: Any) -> tuple[float, float]:
    return float(space.low.min()), float(space.high.max())


def channels_per_frame(layout: str, channels: int) -> int:
    """Channels of one frame: 12 are four frames of three colours, 8 are grey frames. Four are red, green,
    blue and opacity where channels are last, and grey frames (frame stacks are made so) where they are first."""
    if channels % 3 == 0:
        return 3
    return 4 if channels == 4 and layout != "CHW" else 1


def stack_note(space: Any, layout: str, env_id: str) -> tuple[str, ...]:
    if layout == GLYPHS:
        return ()
    size: dict[str, int] = dict(zip(layout, space.shape, strict=True))
    frames = size.get("S", size.get("C", 1) // channels_per_frame(layout, size.get("C", 1)))
    return (f"{env_id}: of its {frames} stacked frames the newest is read; rnd stacks frames itself",) * (frames > 1)


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


def is_glyphs(path: Path, space: Any) -> bool:
    """Whether an entry is a grid of NetHack's glyphs: `glyphs`, or MiniHack's `glyphs_crop`."""
    named = bool(path) and str(path[-1]).startswith("glyphs") and type(space).__name__ == "Box"
    if not named or space.dtype.kind not in "iu" or len(space.shape) != 2 or max(space.shape) > SCREEN:
        return False
    low, high = bounds_of(space)
    return 0 <= low <= high <= MAX_GLYPH


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
