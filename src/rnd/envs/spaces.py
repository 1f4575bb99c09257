"""Batches of Gymnasium observations and actions as tensors that the bonuses read, and spaces as plain data.

Legend: B any leading shape, (N,) or (T, N); X the shape of one encoded observation, S stacked frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rnd.config import Reads
from rnd.config.presets import is_minigrid
from rnd.envs.encoders import GLYPHS, WrongObservationError, channels_per_frame, value_at
from rnd.envs.gym_env import action_spec
from rnd.envs.observations import is_text, leaves_of, make_encoder, parts_of
from rnd.envs.packed import join, split
from rnd.envs.spec import SCREEN, STACK
from rnd.foundation.errors import UserError

WHO = "the environment"


class ObservationEncoder:
    """Observations of a space as uint8 frames, float32 vectors, or rows of both: the same encoding as in `rnd train`.

    Arrays and tensors of numbers, and grey frames of 84x84, are only reshaped. Everything else is encoded one by one.
    """

    def __init__(self, space: spaces.Space[Any], env_id: str = WHO, reads: Reads = "all"):
        """`env_id` and `reads` as `make_encoder` reads them."""
        self.space = space
        missions = any(type(leaf).__name__ == "MissionSpace" for _, leaf in leaves_of(space))
        # MiniGrid's symbolic view is one-hot in `rnd train`, which knows it by its id.
        env_id = "MiniGrid-" if missions and env_id == WHO else env_id
        self.spec, self._write = make_encoder(space, env_id, reads)
        parts = parts_of(space, env_id, reads)
        self.images = {path: Axes(leaf, parts.layouts[path]) for path, leaf in parts.images.items()}
        self.vectors = list(parts.vector)
        self.leaves = {path: leaf for path, leaf in leaves_of(space) if path in {**parts.images, **parts.vector}}
        boxes = all(isinstance(leaf, spaces.Box) for leaf in parts.vector.values()) and not is_minigrid(env_id)
        self.vectorised = boxes and all(axes.is_frame for axes in self.images.values())
        """Batches are encoded as a whole, where they are; others one by one, on the host."""

    def lead(self, obs: Any) -> tuple[int, ...]:
        """The leading shape B of a batch."""
        path, leaf = next(iter(self.leaves.items()))
        shape = tuple(value_at(obs, path).shape) if hasattr(value_at(obs, path), "shape") else None
        own = len(leaf.shape or ())
        if shape is None or shape[len(shape) - own :] != (leaf.shape or ()):
            got = "no array or tensor" if shape is None else f"of the shape {shape}"
            raise UserError(f"the observations are {got}; they must be batches (N, ...) or (T, N, ...) of {self.space}")
        return shape[: len(shape) - own]

    def __call__(self, obs: Any) -> Tensor:
        """[B, X]: the newest frames, vectors or rows of both, on the device where they are (the CPU for arrays)."""
        lead = self.lead(obs)
        if not self.vectorised:
            return self._one_by_one(obs, lead)
        frames = [axes.newest(as_bytes(as_tensor(value_at(obs, path)))) for path, axes in self.images.items()]
        vectors = [as_tensor(value_at(obs, path)).reshape(*lead, -1).float() for path in self.vectors]
        if self.spec.kind == "image":
            return frames[0]
        if not vectors:
            vectors = [frames[0].new_zeros(*lead, 0, dtype=torch.float32)]
        vector = vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)
        if self.spec.kind == "vector":
            return vector
        return join(torch.stack(frames, dim=len(lead)).flatten(len(lead)), vector + 0.0)  # one zero, as in the encoder

    def numbers(self, encoded: Tensor) -> Tensor | None:
        """The vectors in encoded observations, which may have NaN or infinite numbers; None where there are none."""
        return split(encoded, self.spec.pixels)[1] if self.spec.vector_size else None

    def stacks(self, obs: Any) -> Tensor:
        """[B, S, X] for images, oldest frame first: what `dynamics` reads. Vectors as they are."""
        if self.spec.kind == "vector":
            return self(obs)
        for path, axes in self.images.items():
            if axes.frames != STACK:
                raise UserError(
                    f"this bonus reads stacks of {STACK} frames, which {self.leaves[path]} is not; "
                    f"wrap the environment in gymnasium.wrappers.FrameStackObservation(env, {STACK})"
                )
        lead, values = len(self.lead(obs)), {path: value_at(obs, path) for path in self.leaves}
        rolled = [
            values | {path: axes.rolled(as_tensor(values[path]), k + 1) for path, axes in self.images.items()}
            for k in range(STACK)
        ]
        return torch.stack([self(nested(one)) for one in rolled], dim=lead)

    def _one_by_one(self, obs: Any, lead: tuple[int, ...]) -> Tensor:
        count = math.prod(lead)
        leaves = {
            path: as_array(value_at(obs, path)).reshape(count, *(leaf.shape or ()))
            for path, leaf in self.leaves.items()
        }
        out = np.zeros((count, *self.spec.shape), self.spec.dtype)
        for i in range(count):
            try:
                self._write(nested({path: values[i] for path, values in leaves.items()}), out[i])
            except WrongObservationError as error:
                raise UserError(f"observation {i}: {error}") from None
        return torch.from_numpy(out).reshape(*lead, *self.spec.shape)


class Axes:
    """The axes of an image in a batch of them, and its stacked frames."""

    def __init__(self, space: spaces.Space[Any], layout: str):
        shape = tuple(space.shape or ())
        size = dict(zip(layout, shape, strict=True)) if layout != GLYPHS else {}
        self.ndim, self.layout = len(shape), layout
        self.channels = channels_per_frame(layout, size.get("C", 1))
        self.frames = size["S"] if "S" in size else size.get("C", 1) // self.channels
        sides = size.get("H"), size.get("W")
        self.is_frame = sides == (SCREEN, SCREEN) and self.channels == 1 and space.dtype == np.uint8
        """The newest frame is a slice of the image."""

    def newest(self, images: Tensor) -> Tensor:
        """[B, H, W] of images for which `is_frame` holds."""
        lead = images.dim() - self.ndim
        for axis in reversed(range(self.ndim)):
            if self.layout[axis] in "SC":
                images = images.select(lead + axis, -1)
        return images

    def rolled(self, images: Tensor, frames: int) -> Tensor:
        """Images whose frames are so many places further back: the encoder reads the last one."""
        stacked = "S" in self.layout
        axis = self.layout.index("S" if stacked else "C") - self.ndim
        return images.roll(-frames * (1 if stacked else self.channels), axis)


class ActionEncoder:
    """Actions of a space as the bonuses read them: integers from 0, or float32."""

    def __init__(self, space: spaces.Space[Any]):
        self.space, self.spec = space, action_spec(space, WHO)
        self.start = 0 if self.spec.kind == "continuous" else getattr(space, "start", 0)

    def __call__(self, actions: Any, lead: tuple[int, ...]) -> Tensor:
        values = as_tensor(actions)
        values = values - torch.as_tensor(self.start, device=values.device) if np.any(self.start) else values
        values = values.reshape(*lead, *self.spec.shape)
        if self.spec.kind == "continuous":
            return values.to(torch.float32)
        chosen = values.to(torch.int64)
        sizes = torch.tensor(self.spec.sizes if self.spec.kind == "multi_discrete" else self.spec.sizes[0])
        wrong = (chosen != values) | (chosen < 0) | (chosen >= sizes.to(chosen.device))
        if bool(wrong.any()):
            first = as_tensor(actions).reshape(wrong.shape)[wrong][0].item()
            raise UserError(f"the actions hold {first}, which is no action of {self.space}")
        return chosen


def nested(leaves: dict[tuple[Any, ...], Any]) -> Any:
    """What the encoder can take apart by the same paths."""
    if set(leaves) == {()}:
        return leaves[()]
    tree: dict[Any, Any] = {}
    for path, value in leaves.items():
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value
    return tree


def as_tensor(values: Any) -> Tensor:
    """Arrays are copied: PyTorch has no tensors that must not be written."""
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values, order="C"))


def as_bytes(pixels: Tensor) -> Tensor:
    """Pixels as bytes. Refuses other numbers: as bytes they would be other pixels."""
    if pixels.dtype == torch.uint8:
        return pixels
    found = pixels.to(torch.uint8)
    if not bool((found == pixels).all()):
        raise UserError(f"the pixels are not whole numbers from 0 to 255 (their type is {pixels.dtype})")
    return found


def as_array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def replace_rows(obs: Any, rows: dict[int, Any]) -> Any:
    """A batch of observations, some of which are replaced. A batch of texts stays as it is: no bonus reads it."""
    if not rows:
        return obs
    if isinstance(obs, dict):
        return {name: replace_rows(entry, {i: one[name] for i, one in rows.items()}) for name, entry in obs.items()}
    if isinstance(obs, tuple):
        entries = [{i: one[k] for i, one in rows.items()} for k in range(len(next(iter(rows.values()))))]
        return tuple(replace_rows(entry, each) for entry, each in zip(obs, entries, strict=False))
    if not isinstance(obs, np.ndarray):
        return obs
    changed = obs.copy()
    for i, one in rows.items():
        changed[i] = one
    return changed


def like(given: Any, values: Tensor) -> Any:
    """An array where the observations `given` are arrays, a tensor on their device where they are tensors."""
    while isinstance(given, dict | tuple):
        given = next(iter(given.values())) if isinstance(given, dict) else given[0]
    return values.to(given.device) if isinstance(given, Tensor) else values.cpu().numpy()


# --- spaces as plain data --------------------------------------------------------------------------


def space_to_dict(space: spaces.Space[Any] | None) -> dict[str, Any] | None:
    """A space as JSON and arrays. The text of a mission is left out: no network reads it."""
    kind = type(space).__name__
    if space is None:
        return None
    if isinstance(space, spaces.Dict):
        return {"kind": kind, "parts": [[name, space_to_dict(subspace)] for name, subspace in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": kind, "parts": [space_to_dict(subspace) for subspace in space.spaces]}
    if isinstance(space, spaces.Box):
        return {"kind": kind, "low": plain(space.low), "high": plain(space.high), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"kind": kind, "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": kind, "nvec": plain(space.nvec), "start": plain(space.start)}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": kind, "n": int(space.n) if isinstance(space.n, int) else list(space.shape)}
    if is_text(space):
        return {"kind": kind}
    raise UserError(f"a space of the kind {kind} cannot be saved")


def plain(values: np.ndarray) -> np.ndarray:
    """In a type that safetensors has."""
    return values.astype(np.int64) if values.dtype.kind == "u" and values.dtype != np.uint8 else values


def space_from_dict(data: dict[str, Any] | None) -> Any:
    """The inverse of `space_to_dict`."""
    if data is None:
        return None
    kinds: dict[str, Callable[[], Any]] = {
        "Dict": lambda: spaces.Dict([(name, space_from_dict(subspace)) for name, subspace in data["parts"]]),
        "Tuple": lambda: spaces.Tuple([space_from_dict(subspace) for subspace in data["parts"]]),
        "Box": lambda: spaces.Box(data["low"], data["high"], dtype=np.dtype(data["dtype"]).type),
        "Discrete": lambda: spaces.Discrete(data["n"], start=data["start"]),
        "MultiDiscrete": lambda: spaces.MultiDiscrete(data["nvec"], start=data["start"]),
        "MultiBinary": lambda: spaces.MultiBinary(data["n"]),
        "Text": lambda: spaces.Text(1),
        "MissionSpace": MissionSpace,
    }
    return kinds[data["kind"]]()


def encoded_size(data: dict[str, Any]) -> int:
    """Numbers of an observation, choices one-hot, of the space that `space_to_dict` returned. An image counts with its
    own pixels. Takes no memory for them."""
    if data["kind"] == "Dict":
        return sum(encoded_size(subspace) for _, subspace in data["parts"])
    if data["kind"] == "Tuple":
        return sum(map(encoded_size, data["parts"]))
    if data["kind"] == "Box":
        return int(np.asarray(data["low"]).size)
    if data["kind"] == "MultiDiscrete":
        return sum(np.asarray(data["nvec"]).reshape(-1).tolist())
    return math.prod(np.asarray(data.get("n", 1)).reshape(-1).tolist())


class MissionSpace(spaces.Text):
    """Stands for the mission of a MiniGrid environment, whose own class cannot be made again from plain data."""

    def __init__(self) -> None:
        super().__init__(1)
