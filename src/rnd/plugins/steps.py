"""Batches of your observations and actions as the steps that a bonus reads.

Legend: T steps, N environments, S stacked frames, X the shape of one encoded observation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnd.config import Reads
from rnd.data.transitions import Transitions, steps_per_chunk
from rnd.envs.spaces import ActionEncoder, ObservationEncoder, as_tensor
from rnd.envs.spec import ActionSpec, EnvSpec
from rnd.foundation.errors import UserError


class Steps(NamedTuple):
    """Transitions that were observed, encoded: what the next update trains on."""

    next_obs: Tensor
    """[T, N, X]."""
    valid: Tensor
    """[T, N]: False where the step is no transition."""
    raw: Tensor
    scaled: Tensor
    obs: Tensor | None
    """[T, N, X] or [T, N, S, X]; None where the bonus reads s_{t+1} alone."""
    actions: Tensor | None
    first_visit: Tensor | None
    """[T, N]; None where the bonus does not read it."""

    def part(self, steps: slice | Tensor, rows: slice = slice(None)) -> Steps:
        return Steps._make(None if x is None else x[steps, rows] for x in self)

    @property
    def before(self) -> Steps:
        """Steps that lead to s_t instead of s_{t+1}."""
        assert self.obs is not None
        stacked = self.obs.dim() > self.next_obs.dim()
        return self._replace(next_obs=self.obs[:, :, -1] if stacked else self.obs)

    def transitions(self) -> Transitions:
        """Single transitions, in the order of the steps."""
        next_obs = self.next_obs.flatten(0, 1)
        if self.actions is None:
            taken = torch.zeros(len(next_obs), dtype=torch.int64, device=next_obs.device)
        else:
            taken = self.actions.flatten(0, 1)
        if self.obs is not None:
            visit = None if self.first_visit is None else self.first_visit.flatten()[None]
            return dataclasses.replace(Transitions.pairs(self.obs.flatten(0, 1), taken, next_obs), first_visit=visit)
        # s_t is not read: the same memory again
        frames = next_obs.expand(2, *next_obs.shape)
        age = torch.zeros(2, len(next_obs), dtype=torch.int8, device=next_obs.device)
        return Transitions(frames, age, taken[None], 1)

    def chunked(self, function: Callable[[Transitions], Tensor]) -> Tensor:
        """`function` of the transitions, [T, N, ...], in the same portions as the trainer's."""
        total, envs = self.raw.shape
        size = steps_per_chunk(self.next_obs, envs)
        if total <= size:
            whole: Tensor = function(self.transitions())[0].unflatten(0, (-1, envs))
            return whole
        parts = [function(self.part(slice(t, t + size)).transitions()) for t in range(0, total, size)]
        return torch.cat([part[0].unflatten(0, (-1, envs)) for part in parts])


def joined(pending: list[Steps]) -> Steps:
    """All steps, one after the other."""
    columns = zip(*pending, strict=True)
    return Steps._make(None if parts[0] is None else torch.cat(parts) for parts in columns)


class StepEncoder:
    """Encodes what the bonus `name` reads of a step: s_{t+1}, s_t with `reads_obs`, a_t too with `reads_action`.
    `reads`: what of observations with images."""

    def __init__(
        self,
        name: str,
        observation_space: Any,
        action_space: Any,
        reads_obs: bool,
        reads_action: bool,
        device: torch.device,
        reads: Reads = "all",
    ):
        if reads_action and action_space is None:
            raise UserError(f"the bonus {name} reads actions: give it action_space=env.action_space")
        self.name, self.reads_obs, self.device = name, reads_obs, device
        self.observations = ObservationEncoder(observation_space, reads=reads)
        self.actions = ActionEncoder(action_space) if reads_action else None

    def spec(self, env_id: str) -> EnvSpec:
        """What the networks read."""
        action = self.actions.spec if self.actions else ActionSpec("discrete", (1,))
        return EnvSpec(env_id, self.observations.spec, action)

    def __call__(self, next_obs: Any, obs: Any, actions: Any, shape: tuple[int, ...], valid: Any = None) -> Steps:
        """Encoded transitions of T steps. Copies: environments reuse their buffers."""
        before = taken = None
        if self.actions is not None:
            if obs is None or actions is None:
                raise UserError(f"the bonus {self.name} reads s_t and a_t: give it obs=... and actions=... too")
            stacks = self.observations.stacks(obs).to(self.device)
            before = stacks.reshape(*shape, *stacks.shape[len(self.observations.lead(obs)) :]).clone()
            taken = self.actions(actions, shape).to(self.device)
        elif self.reads_obs:
            if obs is None:
                raise UserError(f"the bonus {self.name} reads s_t: give it obs=... too")
            before = self._copied(obs, shape)
        none = torch.zeros(shape, device=self.device)
        mask = torch.ones_like(none, dtype=torch.bool)
        if valid is not None:
            mask = as_tensor(valid).to(self.device, torch.bool).reshape(shape)
        return Steps(self._copied(next_obs, shape), mask, none, none, before, taken, None)

    def _copied(self, obs: Any, shape: tuple[int, ...]) -> Tensor:
        return self.encoded(obs).reshape(*shape, *self.observations.spec.shape).clone()

    def encoded(self, obs: Any) -> Tensor:
        """Observations as the networks read them. Refuses numbers that would stay in the statistics for ever."""
        encoded = self.observations(obs).to(self.device)
        numbers = self.observations.numbers(encoded)
        if numbers is not None and not bool(torch.isfinite(numbers).all()):
            where = (~torch.isfinite(numbers)).nonzero()[0].tolist()
            raise UserError(f"the observation at {where} (leading shape, component) is NaN or infinite")
        return encoded
