"""Collect T steps from N environments.

Legend: T steps, N environments, S stacked frames, H hidden size, X the shape of one observation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Generator, Tensor

from rnd import actions as act
from rnd.config import Config
from rnd.envs.interface import Episode, Step, VectorEnv
from rnd.networks import STACK, Policy
from rnd.transitions import Transitions


@dataclass
class Rollout:
    """What one rollout leaves for learning. The tensors are the collector's own and are overwritten by the next."""

    transitions: Transitions
    logp_TN: Tensor
    values_ext_TpN: Tensor
    values_int_TpN: Tensor
    rewards_ext_TN: Tensor
    """What is learned from: clipped to its sign where the config says so."""
    done_TN: Tensor
    first_TN: Tensor
    """The observation at t is the first of an episode."""
    hidden_NH: Tensor
    """The policy's memory before the first step."""
    episodes: list[Episode] = field(default_factory=list)
    rooms_entered: list[int] = field(default_factory=list)


class Collector:
    """Steps the environments with the policy, and keeps what must live from one rollout to the next."""

    def __init__(self, config: Config, env: VectorEnv, policy: Policy, device: torch.device, generator: Generator):
        self.config, self.env, self.policy = config, env, policy
        self.device, self.generator = device, generator
        steps, envs = config.rollout_steps, config.env.num_envs
        observation, action = env.spec.observation, env.spec.action
        self.stack = STACK if observation.kind == "image" else 1

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        obs_dtype = torch.uint8 if observation.kind == "image" else torch.float32
        action_dtype = torch.float32 if action.kind == "continuous" else torch.int64
        self.frames = zeros(self.stack + steps, envs, *observation.shape, dtype=obs_dtype)
        self.age = zeros(steps + 1, envs, dtype=torch.int8)
        self.actions = zeros(steps, envs, *action.shape, dtype=action_dtype)
        self.logp, self.extra_reward = zeros(steps, envs), zeros(steps, envs)
        self.values_ext, self.values_int = zeros(steps + 1, envs), zeros(steps + 1, envs)
        self.first = torch.ones(steps + 1, envs, dtype=torch.bool, device=device)
        self.hidden = zeros(envs, policy.hidden_size)
        self.host_reward = torch.zeros(steps, envs)
        self.host_done = torch.zeros(steps, envs, dtype=torch.bool)

    def start(self) -> None:
        """Reset the environments; the next rollout begins there."""
        self.frames[-1].copy_(self.env.reset())
        self.first[-1] = True
        self.age[-1] = 0

    @torch.no_grad()
    def collect(self) -> Rollout:
        """One rollout. While one group of environments steps, the policy is evaluated for the other."""
        steps, groups = self.config.rollout_steps, range(len(self.env.groups))
        self._carry_over()
        hidden_NH = self.hidden.clone()
        noise = act.draw_noise(self.env.spec.action, self.logp.shape, self.generator, self.device)
        episodes: list[Episode] = []
        rooms: list[int] = []
        for t in range(steps + 1):
            for g in groups:
                if t > 0:
                    step = self._receive(t - 1, g)
                    episodes += step.info.episodes
                    rooms += step.info.entered
                if t < steps:
                    self._act(t, g, noise[t])
        self.values_ext[-1], self.values_int[-1] = self._last_values()
        return Rollout(
            transitions=Transitions(self.frames, self.age, self.actions, self.stack),
            logp_TN=self.logp,
            values_ext_TpN=self.values_ext,
            values_int_TpN=self.values_int,
            rewards_ext_TN=self._learning_rewards(),
            done_TN=self.host_done.to(self.device),
            first_TN=self.first[:-1],
            hidden_NH=hidden_NH,
            episodes=episodes,
            rooms_entered=rooms,
        )

    def _carry_over(self) -> None:
        """The end of the last rollout is the history of this one."""
        self.frames[: self.stack] = self.frames[-self.stack :].clone()
        self.first[0] = self.first[-1]
        self.age[0] = self.age[-1]
        self.extra_reward.zero_()

    def _act(self, t: int, g: int, noise: Tensor) -> None:
        rows = self.env.groups[g]
        hidden = self.hidden[rows] * (~self.first[t, rows]).unsqueeze(-1)
        window = Transitions(self.frames[:, rows], self.age[:, rows], self.actions, self.stack).windows(t, t + 1)[0]
        out, self.hidden[rows] = self.policy(window, hidden)
        actions = act.sample(self.env.spec.action, out.logits, noise[rows])
        self.env.send(g, actions.cpu())
        self.actions[t, rows] = actions
        self.logp[t, rows] = act.log_prob(self.env.spec.action, out.logits, actions)
        self.values_ext[t, rows], self.values_int[t, rows] = out.value_ext, out.value_int

    def _receive(self, t: int, g: int) -> Step:
        """Take the result of step t: observation t + 1."""
        rows, step = self.env.groups[g], self.env.recv(g)
        if self.config.bootstrap_truncated and bool(step.info.truncated.any()):
            self._bootstrap(t, rows, step)
        self.frames[self.stack + t, rows] = step.obs.to(self.device, non_blocking=True)
        self.host_reward[t, rows], self.host_done[t, rows] = step.reward, step.done
        first = step.done.to(self.device, non_blocking=True)
        self.first[t + 1, rows] = first
        self.age[t + 1, rows] = torch.where(first, 0, (self.age[t, rows] + 1).clamp_max(self.stack - 1))
        return step

    def _bootstrap(self, t: int, rows: slice, step: Step) -> None:
        """Continue the extrinsic value past a time limit: add gamma V(last observation) to the reward."""
        assert step.info.final_obs is not None, "an environment with time limits must tell its final observations"
        self.frames[self.stack + t, rows] = step.info.final_obs.to(self.device)
        self.age[t + 1, rows] = (self.age[t, rows] + 1).clamp_max(self.stack - 1)
        window = Transitions(self.frames[:, rows], self.age[:, rows], self.actions, self.stack).windows(t + 1, t + 2)[0]
        value = self.policy(window, self.hidden[rows])[0].value_ext
        cut = step.info.truncated.to(self.device)
        self.extra_reward[t, rows] = torch.where(cut, self.config.gamma_ext * value, 0.0)

    def _last_values(self) -> tuple[Tensor, Tensor]:
        steps = self.config.rollout_steps
        hidden = self.hidden * (~self.first[-1]).unsqueeze(-1)
        window = Transitions(self.frames, self.age, self.actions, self.stack).windows(steps, steps + 1)[0]
        out, _ = self.policy(window, hidden)
        return out.value_ext, out.value_int

    def _learning_rewards(self) -> Tensor:
        rewards = self.host_reward.to(self.device)
        return (rewards.sign() if self.config.clip_reward else rewards) + self.extra_reward

    def state_dict(self) -> dict[str, Tensor]:
        """What the next rollout starts from."""
        return {
            "frames": self.frames[-self.stack :].clone(),
            "first": self.first[-1].clone(),
            "age": self.age[-1].clone(),
            "hidden": self.hidden.clone(),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.frames[-self.stack :] = state["frames"].to(self.device)
        self.first[-1] = state["first"].to(self.device)
        self.age[-1] = state["age"].to(self.device)
        self.hidden.copy_(state["hidden"])


def random_actions(env: VectorEnv, random: np.random.Generator) -> np.ndarray:
    """Uniform actions for all environments, as the paper's random agent takes them."""
    action, shape = env.spec.action, (env.num_envs, *env.spec.action.shape)
    if action.kind == "continuous":
        low = np.maximum(action.low, -1e3)
        high = np.minimum(action.high, 1e3)
        return random.uniform(low, high, shape).astype(np.float32)
    return random.integers(0, action.sizes if action.kind == "multi_discrete" else action.sizes[0], shape)
