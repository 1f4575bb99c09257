"""Transitions of a rollout, held as single frames.

Legend: T steps, N environments, S stacked frames, X the shape of one observation.

Frames are stored once; the stacks that the policy reads are windows over them. `age` says how old the episode is, so
that a window never reaches into the episode before: those frames read as zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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

    @property
    def obs(self) -> Tensor:
        """[T, N, S, X] for images, [T, N, X] for vectors: what the policy saw."""
        return self.windows(0, len(self.actions))

    @property
    def next_obs(self) -> Tensor:
        """[T, N, X]: the newest frame of s_{t+1}. After an episode's end it is the first of the next one."""
        return self.frames[self.stack :]

    def windows(self, start: int, stop: int) -> Tensor:
        """Stacks of the observations start ... stop - 1, oldest frame first."""
        if self.stack == 1:
            return self.frames[start:stop]
        frames_TNS = self.frames[start : stop + self.stack - 1].unfold(0, self.stack, 1)  # [T, N, X, S]
        stacks = frames_TNS.movedim(-1, 2)
        lag = torch.arange(self.stack - 1, -1, -1, device=self.age.device)
        seen = self.age[start:stop, :, None] >= lag
        return stacks * seen.reshape(*seen.shape, *(1,) * (stacks.dim() - 3)).to(stacks.dtype)

    def envs(self, rows: slice) -> Transitions:
        """The transitions of some environments."""
        return Transitions(self.frames[:, rows], self.age[:, rows], self.actions[:, rows], self.stack)

    def steps(self, start: int, stop: int) -> Transitions:
        """The transitions of some steps."""
        frames = self.frames[start : stop + self.stack]
        return Transitions(frames, self.age[start : stop + 1], self.actions[start:stop], self.stack)

    def pick(self, index_C: Tensor) -> Transitions:
        """Single transitions by their place in [T * N]. They lie along the N axis of one step."""
        step_C, env_C = index_C // self.actions.shape[1], index_C % self.actions.shape[1]
        lag = torch.arange(self.stack + 1, device=index_C.device)[:, None]
        age = self.age[step_C + lag[:2], env_C]
        return Transitions(self.frames[step_C + lag, env_C], age, self.actions[step_C, env_C][None], self.stack)

    @staticmethod
    def pairs(obs: Tensor, actions: Tensor, next_obs: Tensor) -> Transitions:
        """Single transitions [B, X], for agents that keep their own buffers. The B samples lie along the N axis."""
        frames = torch.stack([obs, next_obs])
        age = torch.zeros(frames.shape[:2], dtype=torch.int8, device=frames.device)
        return Transitions(frames, age, actions[None], stack=1)
