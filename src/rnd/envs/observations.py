"""From the observations of Gymnasium environments to those that the networks read: images, vectors, or both.

Images become 84x84 grey frames as in Atari, whatever their layout and numbers are; several are channels of one. What is
no image becomes one float vector: discrete values and the cells of MiniGrid's symbolic view one-hot, texts left out,
dictionaries and tuples concatenated. An observation that has both is one row of bytes (`rnd.envs.spec`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rnd.config.config import Reads
from rnd.config.presets import is_minigrid
from rnd.envs.encoders import (
    GLYPHS,
    MAX_GLYPH,
    Encoder,
    Path,
    bounds_of,
    channels_per_frame,
    concatenated,
    image_encoder,
    mixed_writer,
    vector_encoder,
)
from rnd.envs.spec import SCREEN, ObservationSpec
from rnd.foundation.errors import UserError

LAYOUTS = ("HW", "HWC", "CHW", "SHWC", "SCHW", "HWCS")
"""Axes of an image: stacked frames (S, the newest last), height, width, channels."""
MIN_SIDE, MIN_ICON = 36, 8
"""Sides in pixels. A Box with sides of at least the first is an image; a smaller one only if its channels and range
leave no doubt, and none below the second."""
MAX_CHANNELS = 16
"""More channels, or stacked frames, than this are no image."""
LONG_VECTOR = 4096
"""Longer vectors get a line of advice at the start."""

GLYPH_COPIES = ("chars", "colors", "specials", "screen_descriptions", "tty_chars", "tty_colors", "tty_cursor")
NETHACK_TEXTS = ("message", "inv_strs")
"""Entries that are not read where glyphs are, nor MiniHack's crops of them: they tell the same in another form, or are
texts."""


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
    entries = {path: leaf for path, leaf in leaves_of(space) if not is_empty(leaf)}
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


def is_empty(space: Any) -> bool:
    """Whether a space has no number."""
    return type(space).__name__ == "Box" and 0 in space.shape


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


def stack_note(space: Any, layout: str, env_id: str) -> tuple[str, ...]:
    if layout == GLYPHS:
        return ()
    size: dict[str, int] = dict(zip(layout, space.shape, strict=True))
    frames = size.get("S", size.get("C", 1) // channels_per_frame(layout, size.get("C", 1)))
    return (f"{env_id}: of its {frames} stacked frames the newest is read; rnd stacks frames itself",) * (frames > 1)


def is_glyphs(path: Path, space: Any) -> bool:
    """Whether an entry is a grid of NetHack's glyphs: `glyphs`, or MiniHack's `glyphs_crop`."""
    named = bool(path) and str(path[-1]).startswith("glyphs") and type(space).__name__ == "Box"
    if not named or space.dtype.kind not in "iu" or len(space.shape) != 2 or max(space.shape) > SCREEN:
        return False
    low, high = bounds_of(space)
    return 0 <= low <= high <= MAX_GLYPH
