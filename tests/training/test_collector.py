"""What the policy reads and what the buffers hold, against a few lines that keep their own stacks."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch

from rnd.bench.synthetic import SyntheticAtari
from rnd.config.presets import preset
from rnd.envs.spec import STACK
from rnd.models.policy.base import PolicyOutput
from rnd.training.collector import SynchronousCollector

N, T = 4, 6
ENDS = {(2, 0), (3, 0), (T - 1, 1), (T + 1, 3), (2 * T - 1, 2)}
"""(step, environment): two in a row, and in the very last step of each rollout."""


class Scheduled(SyntheticAtari):
    """Episodes end at known steps; remembers what it gave."""

    def __init__(self) -> None:
        super().__init__(N)
        self.given: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.steps = [0] * len(self.groups)

    def _send(self, group: slice) -> None:
        super()._send(group)
        g = self.groups.index(group)
        for i in range(group.start, group.stop):
            self.buffers["terminated"][i] = (self.steps[g], i) in ENDS
            self.buffers["reward"][i] = 10 * self.steps[g] + i
        self.steps[g] += 1
        if g == len(self.groups) - 1:
            self.given.append(tuple(self.buffers[name].copy() for name in ("obs", "reward", "terminated")))


class Witness:
    """A policy that remembers what it saw; its memory counts the steps of the episode."""

    hidden_size = 1
    compilable = False

    def __init__(self) -> None:
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, obs: torch.Tensor, hidden: torch.Tensor) -> tuple[PolicyOutput, torch.Tensor]:
        self.seen.append((obs.clone(), hidden[:, 0].clone()))
        values = torch.zeros(len(obs))
        return PolicyOutput(torch.zeros(len(obs), 18), values, values), hidden + 1


def test_stacks_hidden_states_and_buffers():
    """Nothing reaches into the episode before, and the second rollout goes on where the first ended."""
    config = preset("montezuma")
    env = replace(config.env, num_envs=N)
    config = replace(config, env=env, rollout_steps=T, clip_reward=False, device="cpu")
    envs, policy = Scheduled(), Witness()
    collector = SynchronousCollector(config, envs, policy, torch.device("cpu"), torch.Generator())
    collector.start()
    frames = [deque([np.zeros((84, 84), np.uint8)] * (STACK - 1) + [envs.buffers["obs"][i].copy()]) for i in range(N)]
    steps, left = [0] * N, torch.zeros(N, 1)
    for number in range(2):
        policy.seen.clear()
        rollout = collector.collect()
        groups = len(envs.groups)
        assert torch.equal(rollout.hidden_NH, left)
        assert len(policy.seen) == (T + 1) * groups  # and once about the observation after the last
        for t in range(T + 1):
            obs, memory = (torch.cat(x) for x in zip(*policy.seen[t * groups : (t + 1) * groups], strict=True))
            assert torch.equal(obs, torch.from_numpy(np.stack([np.stack(list(f)) for f in frames])))
            assert memory.tolist() == steps
            if t == T:
                break
            left = memory[:, None] + 1
            assert torch.equal(rollout.transitions.obs[t], obs)
            assert rollout.first_TN[t].tolist() == [step == 0 for step in steps]
            new, reward, ended = envs.given[number * T + t]
            assert torch.equal(rollout.transitions.next_obs[t], torch.from_numpy(new))
            assert rollout.rewards_ext_TN[t].tolist() == reward.tolist()
            assert rollout.done_TN[t].tolist() == ended.astype(bool).tolist()
            for i in range(N):
                frames[i].popleft()
                if ended[i]:
                    frames[i] = deque([np.zeros((84, 84), np.uint8)] * (STACK - 1))
                frames[i].append(new[i])
                steps[i] = 0 if ended[i] else steps[i] + 1
    assert len(rollout.episodes) == 2


def test_rewards_are_clipped_to_their_sign():
    config = preset("montezuma")
    config = replace(config, env=replace(config.env, num_envs=N), rollout_steps=T, device="cpu")
    assert config.clip_reward
    collector = SynchronousCollector(config, Scheduled(), Witness(), torch.device("cpu"), torch.Generator())
    collector.start()
    expected_TN = torch.ones(T, N)
    expected_TN[0, 0] = 0  # the one reward of 10 t + i that is none
    assert torch.equal(collector.collect().rewards_ext_TN, expected_TN)


FINAL = torch.arange(200, 200 + N, dtype=torch.uint8)


class TimeLimited(Scheduled):
    """The same ends, but by a time limit: the last observation of the episode is told beside the first of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.final = torch.zeros_like(self.buffers.tensors["obs"])
        for view, rows in zip(self._views, self.groups, strict=True):
            view["final_obs"] = self.final[rows]

    def _send(self, group: slice) -> None:
        super()._send(group)
        self.buffers["truncated"][group] = self.buffers["terminated"][group]
        self.buffers["terminated"][group] = False
        self.final[group] = FINAL[group, None, None]


class Judge(Witness):
    """Values that tell which frames were seen, in which order, with which memory."""

    def __call__(self, obs: torch.Tensor, hidden: torch.Tensor) -> tuple[PolicyOutput, torch.Tensor]:
        out, after = super().__call__(obs, hidden)
        return out._replace(value_ext=judged(obs, hidden[:, 0])), after


def judged(obs: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    return obs[:, :, 0, 0].float() @ torch.tensor([1000.0, 100.0, 10.0, 1.0]) + memory / 8


def test_values_go_on_past_a_time_limit():
    """gamma V of the stack that ends in the last observation, with the memory of then, follows the reward."""
    config = preset("montezuma")
    env = replace(config.env, num_envs=N)
    changes = {"clip_reward": False, "device": "cpu", "bootstrap_truncated": True}
    config = replace(config, env=env, rollout_steps=T, **changes)
    envs = TimeLimited()
    collector = SynchronousCollector(config, envs, Judge(), torch.device("cpu"), torch.Generator())
    collector.start()
    for number in range(2):
        rollout = collector.collect()
        for t in range(T):
            step = number * T + t
            assert torch.equal(rollout.rewards_ext_TN[t], torch.from_numpy(envs.given[step][1]))
            extra = rollout.truncation_bootstrap_TN[t]
            cut = [i for i in range(N) if (step, i) in ENDS]
            assert extra.nonzero().flatten().tolist() == cut
            for i in cut:
                began_after = max([s for s, j in ENDS if j == i and s < step], default=-1)
                stack = torch.cat([rollout.transitions.obs[t, i, 1:], FINAL[i].expand(1, 84, 84)])
                value = judged(stack[None], torch.tensor([float(step - began_after)]))
                assert float(extra[i]) == pytest.approx(config.gamma_ext * float(value), rel=1e-6)
