"""The rollout buffer: T steps of N environments on the device.

Legend: T steps, N environments, S stacked frames, H hidden size, X the shape of one observation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rnd.config import Config
from rnd.data.transitions import Rollout, Transitions
from rnd.envs.interface import Episode
from rnd.envs.spec import EnvSpec
from rnd.models import actions as act
from rnd.models.acting import StepOutput


class StepSlot(NamedTuple):
    """Where the result of one step of one group is written: the reward where the environments are, the observation on
    the device."""

    reward: Tensor
    obs: Tensor


class RolloutBuffer:
    """One row per step, and one more for the observation after the last. Every frame is stored once."""

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        hidden_size: int,
        device: torch.device,
        first_visits: bool,
        env_device: torch.device,
    ):
        self.config = config
        steps, envs = config.rollout_steps, config.env.num_envs
        observation, action = spec.observation, spec.action
        self.stack = observation.stack

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        frame_dtype = torch.float32 if observation.kind == "vector" else torch.uint8
        self.frames = zeros(self.stack + steps, envs, *observation.shape, dtype=frame_dtype)
        self.age = zeros(steps + 1, envs, dtype=torch.int8)
        self.first = zeros(steps + 1, envs, dtype=torch.bool)
        self.actions = zeros(steps + 1, envs, *action.shape, dtype=act.dtype(action))
        self.logp, self.values_ext, self.values_int = (zeros(steps + 1, envs) for _ in range(3))
        self.noise = zeros(steps + 1, envs, act.noise_size(action))
        self.truncation_bootstrap = zeros(steps, envs)
        self.rewards = zeros(steps, envs)
        self.hidden_before = zeros(envs, hidden_size)
        self.first_visit = zeros(steps, envs, dtype=torch.bool) if first_visits else None
        pin = device.type == "cuda" and env_device.type == "cpu"
        self.env_rewards = torch.zeros(steps, envs, device=env_device, pin_memory=pin)

    def slots(self, rows: slice) -> list[StepSlot]:
        """The slots of all steps of some environments. The views are made once: making them at every step would cost
        time."""
        steps = range(self.config.rollout_steps)
        return [StepSlot(self.env_rewards[t, rows], self.frames[t + self.stack, rows]) for t in steps]

    def start_rollout(self, hidden_NH: Tensor, noise_TNA: Tensor) -> None:
        """The end of the last rollout is the history of this one."""
        steps = self.config.rollout_steps
        self.frames[: self.stack] = self.frames[steps:].clone()
        self.hidden_before.copy_(hidden_NH)
        self.truncation_bootstrap.zero_()
        self.noise[:steps] = noise_TNA

    def store(self, t: Tensor, rows: slice, out: StepOutput) -> None:
        """Write a policy step at row t, an index on the device."""
        for buffer, values in (
            (self.first, out.first),
            (self.age, out.age),
            (self.actions, out.actions),
            (self.logp, out.logp),
            (self.values_ext, out.value_ext),
            (self.values_int, out.value_int),
        ):
            buffer[:, rows].index_copy_(0, t, values.unsqueeze(0))

    def rollout(self, episodes: list[Episode], rooms_entered: list[int]) -> Rollout:
        """The buffers as a rollout; the next one overwrites its tensors."""
        self.rewards.copy_(self.env_rewards, non_blocking=True)
        if self.config.clip_reward:
            self.rewards.sign_()
        done_TN = self.first[1:]
        return Rollout(
            transitions=Transitions(self.frames, self.age, self.actions[:-1], self.stack, self.first_visit, done_TN),
            logp_TN=self.logp[:-1],
            values_ext_TpN=self.values_ext,
            values_int_TpN=self.values_int,
            rewards_ext_TN=self.rewards,
            truncation_bootstrap_TN=self.truncation_bootstrap,
            done_TN=done_TN,
            first_TN=self.first[:-1],
            hidden_NH=self.hidden_before,
            episodes=episodes,
            rooms_entered=rooms_entered,
        )
