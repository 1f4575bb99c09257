"""One step of a policy: from the newest frames to actions. Used by training, evaluation and `rnd watch`.

Legend: N environments, S stacked frames, H hidden size, X the shape of one observation, R some of the N, A noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rnd.data.transitions import next_age, stacks
from rnd.envs.spec import ActionSpec, EnvSpec
from rnd.models import actions as act
from rnd.models.policy.base import Policy, PolicyOutput


class StepOutput(NamedTuple):
    """Result of a policy step, one row per environment."""

    actions: Tensor
    logp: Tensor
    value_ext: Tensor
    value_int: Tensor
    hidden: Tensor
    first: Tensor
    age: Tensor


def policy_step(
    policy: Policy,
    action: ActionSpec,
    stack: int,
    t: Tensor,
    frames: Tensor,
    first_N: Tensor,
    age_N: Tensor,
    hidden_NH: Tensor,
    noise: Tensor,
) -> StepOutput:
    """Step t of some environments, from the rollout's buffers of frames and noise (time first) and the state before it:
    age and hidden. `first_N`: the newest frame is the first of an episode."""
    age_N = next_age(age_N, first_N, stack)
    newest_SNX = frames.index_select(0, t + torch.arange(stack, device=t.device))
    out, hidden_NH = policy(stacks(newest_SNX, age_N), hidden_NH * (~first_N).unsqueeze(-1))
    out = PolicyOutput(*(x.float() for x in out))
    actions = act.sample(action, out.logits, noise.index_select(0, t)[0])
    logp = act.log_prob(action, out.logits, actions)
    return StepOutput(actions, logp, out.value_ext, out.value_int, hidden_NH, first_N, age_N)


class Actor:
    """A policy that plays step by step, outside of training: keeps the last frames and the recurrent state of N
    environments."""

    def __init__(self, policy: Policy, spec: EnvSpec, num_envs: int):
        self.policy, self.action = policy, spec.action
        self.device = next(policy.parameters()).device
        observation = spec.observation
        self.stack = observation.stack
        dtype = torch.float32 if observation.kind == "vector" else torch.uint8
        self.frames = torch.zeros(self.stack, num_envs, *observation.shape, dtype=dtype, device=self.device)
        self.age = torch.zeros(num_envs, dtype=torch.int8, device=self.device)
        self.hidden = torch.zeros(num_envs, policy.hidden_size, device=self.device)
        self._first_row = torch.zeros(1, dtype=torch.int64, device=self.device)

    @torch.no_grad()
    def act(self, obs_NX: Tensor, first_N: Tensor, noise_RA: Tensor, rows: Sequence[int]) -> Tensor:
        """Actions of some environments, R `rows`, from the observations of all N. `first`: their episodes begin."""
        self.frames = torch.cat([self.frames[1:], obs_NX.to(self.device)[None]])
        first_N, noise_RA = first_N.to(self.device), noise_RA.to(self.device)
        inputs = (self.frames[:, rows], first_N[rows], self.age[rows], self.hidden[rows], noise_RA[None])
        out = policy_step(self.policy, self.action, self.stack, self._first_row, *inputs)
        self.age[rows], self.hidden[rows] = out.age, out.hidden
        return out.actions
