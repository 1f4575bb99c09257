"""A rollout, its transitions stored as single frames.

Legend: T steps, N environments, S stacked frames, H hidden size, X the shape of one observation.

Frames are stored once; the stacks that the policy reads are windows over them. `age` counts the steps since the
episode's start: frames of a window that belong to the episode before read as zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rnd.envs.interface import Episode

CHUNK = {"cpu": 512, "cuda": 65_536}
"""Transitions whose bonus is computed in one call: bounds the memory of the networks' activations. On a CPU large ones
would come as fresh pages from the system in every call."""
IMAGE_CHUNK = 128
"""The same for images on a CPU: what their convolutions compute stays in its cache."""


@dataclass(frozen=True)
class Transitions:
    """(s_t, a_t, s_{t+1}) for T steps of N environments."""

    frames: Tensor
    """[S - 1 + T + 1, N, X]: S - 1 frames of history, then the observations 0 ... T."""
    age: Tensor
    """[T + 1, N] steps since the episode's start, at most S - 1."""
    actions: Tensor
    """[T, N, ...]."""
    stack: int
    first_visit: Tensor | None = None
    """[T, N]: s_{t+1} is visited for the first time in its episode. None where no bonus reads it."""
    done: Tensor | None = None
    """[T, N]: the episode ends with the step, s_{t+1} is the first of the next one. None where no s_{t+1} is."""
    draw: Tensor | None = None
    """[T, N] uniform random numbers, new in every epoch, for losses that are random. None outside of an update."""

    @property
    def obs(self) -> Tensor:
        """[T, N, S, X] for images, [T, N, X] for vectors: what the policy read."""
        return self.windows(0, len(self.actions))

    @property
    def next_obs(self) -> Tensor:
        """[T, N, X]: the newest frame of s_{t+1}. At an episode's end it is the first frame of the next one."""
        return self.frames[self.stack :]

    @property
    def newest(self) -> Tensor:
        """[T + 1, N, X]: the newest frames of s_0 ... s_T."""
        return self.frames[self.stack - 1 :]

    def windows(self, start: int, stop: int) -> Tensor:
        """Stacks of the observations start ... stop - 1, oldest frame first."""
        if self.stack == 1:
            return self.frames[start:stop]
        frames_TNXS = self.frames[start : stop + self.stack - 1].unfold(0, self.stack, 1)
        return hide_before_start(frames_TNXS.movedim(-1, 2), self.age[start:stop])

    def envs(self, rows: slice) -> Transitions:
        """The transitions of some environments."""
        rest = self._each(lambda x: x[:, rows])
        return Transitions(self.frames[:, rows], self.age[:, rows], self.actions[:, rows], self.stack, *rest)

    def steps(self, start: int, stop: int) -> Transitions:
        """The transitions of some steps."""
        frames, rest = self.frames[start : stop + self.stack], self._each(lambda x: x[start:stop])
        return Transitions(frames, self.age[start : stop + 1], self.actions[start:stop], self.stack, *rest)

    def pick(self, index_C: Tensor) -> Transitions:
        """Single transitions by their index in [T * N]. They lie along the N axis of one step."""
        step_C, env_C = index_C // self.actions.shape[1], index_C % self.actions.shape[1]
        lag = torch.arange(self.stack + 1, device=index_C.device)[:, None]
        frames, age = self.frames[step_C + lag, env_C], self.age[step_C + lag[:2], env_C]
        rest = self._each(lambda x: x[step_C, env_C][None])
        return Transitions(frames, age, self.actions[step_C, env_C][None], self.stack, *rest)

    def _each(self, select: Callable[[Tensor], Tensor]) -> list[Tensor | None]:
        """`select` of the tensors that only some bonuses read."""
        return [None if x is None else select(x) for x in (self.first_visit, self.done, self.draw)]

    @staticmethod
    def pairs(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Transitions:
        """Single transitions, for agents that keep their own buffers: observations [B, X], or stacks [B, S, X] whose
        frames are all of their episode, and the newest next frames [B, X]. The B samples lie along the N axis."""
        stack = obs.shape[1] if obs.dim() > next_obs.dim() else 1
        frames = torch.stack([*(obs.unbind(1) if stack > 1 else [obs]), next_obs])
        age = torch.full((2, len(next_obs)), stack - 1, dtype=torch.int8, device=frames.device)
        return Transitions(frames, age, actions[None], stack)


@dataclass
class Rollout:
    """One rollout, ready to learn from. The tensors are the collector's buffers, which the next rollout overwrites."""

    transitions: Transitions
    logp_TN: Tensor
    values_ext_TpN: Tensor
    values_int_TpN: Tensor
    rewards_ext_TN: Tensor
    """The rewards that are learned from: clipped to their sign with `clip_reward`."""
    truncation_bootstrap_TN: Tensor
    """gamma V(last observation) where a time limit ended the episode and `bootstrap_truncated` is set; 0 elsewhere."""
    done_TN: Tensor
    first_TN: Tensor
    """The observation at t is the first of an episode."""
    hidden_NH: Tensor
    """The policy's hidden state before the first step."""
    episodes: list[Episode] = field(default_factory=list)
    rooms_entered: list[int] = field(default_factory=list)

    def clone(self) -> Rollout:
        """A copy that the collector does not overwrite."""
        return Rollout.from_state(self.state_dict(), self.logp_TN.device)

    def state_dict(self) -> dict[str, Any]:
        """Tensors (copied) and plain data."""
        transitions = self.transitions
        frames = {name: value.clone() for name, value in vars(transitions).items() if isinstance(value, Tensor)}
        return {
            "transitions": frames,
            "stack": transitions.stack,
            "tensors": {name: value.clone() for name, value in vars(self).items() if isinstance(value, Tensor)},
            "episodes": [[e.env, e.episode_return, e.length, sorted(e.rooms)] for e in self.episodes],
            "rooms_entered": list(self.rooms_entered),
        }

    @staticmethod
    def from_state(state: dict[str, Any], device: torch.device) -> Rollout:
        transitions = {name: value.to(device) for name, value in state["transitions"].items()}
        tensors = {name: value.to(device) for name, value in state["tensors"].items()}
        transitions.setdefault("done", tensors["done_TN"])  # states before E3B lack it
        return Rollout(
            transitions=Transitions(**transitions, stack=state["stack"]),
            **tensors,
            episodes=[Episode(env, ret, length, frozenset(rooms)) for env, ret, length, rooms in state["episodes"]],
            rooms_entered=state["rooms_entered"],
        )


def in_chunks(function: Callable[[Transitions], Tensor], transitions: Transitions) -> Tensor:
    """`function` over a rollout, a few steps at a time."""
    steps, envs = transitions.actions.shape[:2]
    size = steps_per_chunk(transitions.frames, envs)
    return torch.cat([function(transitions.steps(t, min(t + size, steps))) for t in range(0, steps, size)])


def steps_per_chunk(frames_TNX: Tensor, envs: int) -> int:
    """Steps of a rollout that are scored together."""
    cpu_images = frames_TNX.device.type == "cpu" and frames_TNX.dtype == torch.uint8
    return max(1, (IMAGE_CHUNK if cpu_images else CHUNK[frames_TNX.device.type]) // envs)


def next_age(age_N: Tensor, first_N: Tensor, stack: int) -> Tensor:
    """Steps since the episode's start, as far as a stack reaches back."""
    return torch.where(first_N, 0, (age_N + 1).clamp_max(stack - 1))


def stacks(frames_SNX: Tensor, age_N: Tensor) -> Tensor:
    """What the policy reads, from the newest S frames: [N, S, X] for images, [N, X] for vectors."""
    if len(frames_SNX) == 1:
        return frames_SNX[0]
    return hide_before_start(frames_SNX.movedim(0, 1), age_N)


def hide_before_start(stacks_BSX: Tensor, age_B: Tensor) -> Tensor:
    """Frames from before the episode's start are zero."""
    lag_S = torch.arange(stacks_BSX.shape[age_B.dim()] - 1, -1, -1, device=age_B.device)
    seen_BS = age_B.unsqueeze(-1) >= lag_S
    return stacks_BSX * seen_BS.reshape(*seen_BS.shape, *(1,) * (stacks_BSX.dim() - seen_BS.dim())).to(stacks_BSX.dtype)
