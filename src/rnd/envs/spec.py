"""What an environment is, and the arrays that its steps are written to. Numpy only: worker processes import this.

Legend: N environments, one row each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Arrays = dict[str, np.ndarray]
Layout = dict[str, tuple[tuple[int, ...], Any]]
"""Shape and type of arrays by name."""
STACK = 4
"""Frames that a policy for images reads."""
SCREEN = 84
"""Pixels on a side of every image that the networks read."""


@dataclass(frozen=True)
class ObservationSpec:
    """The observations of one environment: an 84x84 grey image (uint8), a vector (float32), or both.

    Both are one row of bytes, so that buffers, workers and checkpoints need not know about parts: the images first, and
    then the vector as the bytes of its float32 numbers (`rnd.envs.packed`)."""

    kind: Literal["image", "vector", "mixed"]
    shape: tuple[int, ...]
    low: tuple[float, ...] = ()
    """Bounds of the components of a vector; empty: none."""
    high: tuple[float, ...] = ()
    one_hot: tuple[bool, ...] = ()
    """Components of a vector that are 0 or 1, choices one-hot for example; empty: none."""
    notes: tuple[str, ...] = ()
    """Lines for the start banner: what the networks do not see."""
    images: int = 0
    """Images of a mixed observation."""

    @property
    def dtype(self) -> Any:
        return np.float32 if self.kind == "vector" else np.uint8

    @property
    def stack(self) -> int:
        """Frames that a policy reads: a stack of images, or one vector. Of mixed observations the newest vector."""
        return 1 if self.kind == "vector" else STACK

    @property
    def pixels(self) -> int:
        """Entries of a mixed observation that are pixels; those after them are the vector."""
        return self.images * SCREEN * SCREEN

    @property
    def vector_size(self) -> int:
        """Components of the vector; 0 where there is none."""
        if self.kind == "mixed":
            return (self.shape[0] - self.pixels) // np.dtype(np.float32).itemsize
        return self.shape[0] if self.kind == "vector" else 0


def vector_of(packed: np.ndarray, pixels: int) -> np.ndarray:
    """The vectors of mixed observations, as a view."""
    return packed[..., pixels:].view(np.float32)


@dataclass(frozen=True)
class ActionSpec:
    """The actions of one environment. `sizes`: choices of each discrete component, or the dimensions of a box."""

    kind: Literal["discrete", "multi_discrete", "continuous"]
    sizes: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action in a batch."""
        if self.kind == "continuous":
            return self.sizes
        return () if self.kind == "discrete" else (len(self.sizes),)

    @property
    def dtype(self) -> Any:
        return np.float32 if self.kind == "continuous" else np.int64

    @property
    def smallest(self) -> np.dtype[Any]:
        """The smallest type that holds an action, to keep many of them."""
        return np.dtype(np.float32) if self.kind == "continuous" else np.min_scalar_type(max(self.sizes) - 1)


@dataclass(frozen=True)
class EnvSpec:
    """What the trainer needs to know about an environment before its first step."""

    id: str
    observation: ObservationSpec
    action: ActionSpec
    frame_skip: int = 1
    has_rooms: bool = False
    """`StepInfo.room` is written (Montezuma's Revenge, Pitfall!, MiniGrid)."""
    has_cells: bool = False
    """`StepInfo.room` is a cell of a grid, y * 256 + x, instead of a room (MiniGrid)."""
    success_return: float | None = None
    """An episode whose return exceeds this counts as a success; None where success has no meaning."""
    time_limits: bool = False
    """`StepInfo.final_obs` is written, so that a value can be bootstrapped at a time limit."""
    backend: str = ""
    """What steps the environments, for the start banner."""


def buffer_layout(spec: EnvSpec, num_envs: int) -> Layout:
    """The arrays of `Buffers`; worker processes share the same layout."""
    n = num_envs
    layout: Layout = {
        "obs": ((n, *spec.observation.shape), spec.observation.dtype),
        "action": ((n, *spec.action.shape), spec.action.dtype),
        "reward": ((n,), np.float32),
        "terminated": ((n,), np.bool_),
        "truncated": ((n,), np.bool_),
        "room": ((n,), np.int32),
        "final_room": ((n,), np.int32),  # where an episode ended: its last room, before the reset
        "lives": ((n,), np.int32),
    }
    if spec.time_limits:
        layout["final_obs"] = layout["obs"]
    return layout


class Env(ABC):
    """One environment. It writes its results to row `i` of shared arrays and resets itself when an episode ends."""

    spec: EnvSpec
    exact = True
    """False where episodes are known not to repeat themselves: `load` then continues none."""

    @abstractmethod
    def reset(self, out: Arrays, i: int) -> None:
        """Start an episode; write obs, room and lives."""

    @abstractmethod
    def step(self, out: Arrays, i: int) -> None:
        """Take `out["action"][i]`; write all the other arrays."""

    @abstractmethod
    def save(self) -> bytes:
        """The whole state as plain bytes."""

    @abstractmethod
    def load(self, data: bytes, out: Arrays, i: int) -> bool:
        """Continue from what `save` returned; row `i` of `out` already holds the arrays of that step.

        Returns False where that cannot be: then the next step ends the episode, as at a time limit, and resets."""

    def repeats(self) -> bool:
        """Whether an episode is the same whenever it is played from its seed. May play a while to find out."""
        return True

    def close(self) -> None:
        """Free processes, windows and memory."""


def check_repeats(envs: Sequence[Env]) -> bool:
    """Whether the first of some equal environments repeats itself; all of them remember it."""
    repeats = envs[0].repeats()
    for env in envs:
        env.exact = repeats
    return repeats


class StepCheck:
    """Whether rewards and observations are finite, and observations within the bounds of their spec."""

    def __init__(self, observation: ObservationSpec):
        self.vector, self.pixels = bool(observation.vector_size), observation.pixels
        largest = np.finfo(np.float32).max  # infinity and NaN are beyond it
        self.low, self.high = (
            np.clip(bound, -largest, largest).astype(np.float32) if bound else None
            for bound in (observation.low, observation.high)
        )

    def __call__(self, out: Arrays, rows: slice, steps: np.ndarray | None) -> str | None:
        """A message that names the first environment whose step is wrong, or None. Without `steps`: whose observation
        after a reset is wrong."""
        for name in ("obs",) if steps is None else ("reward", "obs", "final_obs"):
            if name not in out or (name != "reward" and not self.vector):
                continue
            values, bounded = out[name][rows], self.low is not None and name != "reward"
            if values.dtype == np.uint8:
                values = vector_of(values, self.pixels)
            good = (values >= self.low) & (values <= self.high) if bounded else np.isfinite(values)
            if np.count_nonzero(good) == good.size:  # all() takes several times as long
                continue
            bad = ~good.reshape(len(good), -1)
            if name == "final_obs":
                bad &= out["truncated"][rows, None]  # elsewhere it is old, and nothing reads it
            if bad.any():
                row, component = (int(index[0]) for index in np.nonzero(bad))
                i, value = rows.start + row, values.reshape(len(values), -1)[row, component]
                what = f"a NaN or infinite {'reward' if name == 'reward' else 'observation'}"
                if np.isfinite(value):
                    what = f"an observation outside its space (component {component} is {value:g})"
                when = "its reset" if steps is None else f"step {int(steps[i])} of its episode"
                return f"environment {i} returned {what} at {when}"
        return None
