"""The random agent, which initialises the statistics of observations (section 2.4 of the paper).

Legend: T steps, N environments, X the shape of one observation.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rnd.bonus.base import BonusModule
from rnd.config import Config
from rnd.envs.interface import VectorEnv

LARGEST = 1e3
"""Bounds of an action beyond this are none."""
HOST_STEPS = 16_384
"""Environment steps that the host buffer holds on their way to a GPU: 115 MB of Atari frames."""


def random_actions(env: VectorEnv, random: np.random.Generator) -> np.ndarray:
    """Uniform actions for all environments, as the paper's random agent takes them. Numbers without bounds are normal,
    as those of a policy at its start."""
    action, shape = env.spec.action, (env.num_envs, *env.spec.action.shape)
    if action.kind == "continuous":
        bounded = np.maximum(np.abs(action.low), np.abs(action.high)) <= LARGEST
        actions = random.uniform(np.where(bounded, action.low, 0), np.where(bounded, action.high, 1), shape)
        if not bounded.all():
            normal = random.standard_normal(shape).clip(action.low, action.high)
            actions = np.where(bounded, actions, normal)
        return actions.astype(np.float32)
    return random.integers(0, action.sizes if action.kind == "multi_discrete" else action.sizes[0], shape)


class RandomAgent:
    """Plays up to `steps` steps of all environments per call of `play`. Resets them when it is made."""

    def __init__(self, env: VectorEnv, random: np.random.Generator, steps: int, device: torch.device):
        self.env, self.random = env, random
        shape, dtype = env.reset().shape, env.buffers.tensors["obs"].dtype
        self.obs_TNX = torch.empty(steps, *shape, dtype=dtype, device=device)
        self.rewards_TN = torch.empty(steps, env.num_envs, device=device)
        # The environments write where they are: to these very tensors, or on the host a chunk at a time.
        self.chunk, self.host_obs, self.host_rewards = steps, self.obs_TNX, self.rewards_TN
        if device.type != env.device.type:
            self.chunk = min(steps, max(1, HOST_STEPS // env.num_envs))
            pin = device.type == "cuda"
            self.host_obs = torch.empty(self.chunk, *shape, dtype=dtype, pin_memory=pin)
            self.host_rewards = torch.empty(self.chunk, env.num_envs, pin_memory=pin)

    def play(self, steps: int) -> tuple[Tensor, Tensor]:
        """Observations [T, N, X] after each step, and rewards [T, N]; overwritten by the next call."""
        for start in range(0, steps, self.chunk):
            stop = min(start + self.chunk, steps)
            actions_TN = np.stack([random_actions(self.env, self.random) for _ in range(start, stop)])
            obs, rewards = self.host_obs[: stop - start], self.host_rewards[: stop - start]
            self.env.play(actions_TN, obs, rewards)
            if self.host_obs is not self.obs_TNX:
                self.obs_TNX[start:stop].copy_(obs)
                self.rewards_TN[start:stop].copy_(rewards)
        return self.obs_TNX[:steps], self.rewards_TN[:steps]


def needs_random_start(config: Config, bonus: BonusModule) -> bool:
    """Whether statistics of observations are initialised by a random agent: those of the bonus or of the policy."""
    return bonus.random_start or config.normalize_obs


def random_steps(config: Config) -> int:
    """Steps of the random agent in every environment: at most a tenth of the run."""
    return min(config.bonus_options.random_steps, config.iterations * config.rollout_steps // 10)
