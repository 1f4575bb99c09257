"""Collect T steps from N environments.

Legend: T steps, N environments, S stacked frames, H hidden size, X the shape of one observation.

The host files observations under their step's number. One step of one group is one piece of device work (`think`): read
the newest frames, evaluate the policy, sample, and file the rest under the step's number, which is on the device too.
Nothing in it waits for the host, so on CUDA it is captured once as a graph and replayed.
"""

from __future__ import annotations

from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from rnd import actions as act
from rnd.config import Config
from rnd.envs.interface import PolicyInput, StepInfo, VectorEnv
from rnd.envs.spec import ActionSpec
from rnd.fast import Mark, Replay, arithmetic, compiled
from rnd.networks import STACK, Policy, PolicyOutput
from rnd.stopwatch import Stopwatch
from rnd.transitions import Rollout, Transitions, next_age, stacks


class Desk(NamedTuple):
    """Where the result of a step of a group goes: reward and end on the host; on the device the next observation, and
    whether it is the first of an episode."""

    reward: Tensor
    done: Tensor
    obs: Tensor
    first: Tensor


class Collector:
    """Steps the environments with the policy, and keeps what must live from one rollout to the next."""

    def __init__(self, config: Config, env: VectorEnv, policy: Policy, device: torch.device, generator: Generator):
        self.config, self.env, self.policy = config, env, policy
        self.device, self.generator = device, generator
        self.clock = Stopwatch("emulation", "inference")
        self._thought = Mark(device, spin=True)
        self._closed = False
        steps, envs = config.rollout_steps, config.env.num_envs
        observation, action = env.spec.observation, env.spec.action
        self.stack = STACK if observation.kind == "image" else 1
        pin = device.type == "cuda"

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        obs_dtype = torch.uint8 if observation.kind == "image" else torch.float32
        action_dtype = torch.float32 if action.kind == "continuous" else torch.int64
        # What is known now, before step t.
        self.age_now = zeros(envs, dtype=torch.int8)
        self.hidden = zeros(envs, policy.hidden_size)
        self.step_number = zeros(len(env.groups), 1, dtype=torch.int64)
        self.actions_now = zeros(envs, *action.shape, dtype=action_dtype)
        self.actions_host = torch.zeros(envs, *action.shape, dtype=action_dtype, pin_memory=pin)
        # What is filed: one row a step, and one for the observation after the last.
        self.frames = zeros(self.stack + steps, envs, *observation.shape, dtype=obs_dtype)
        self.age = zeros(steps + 1, envs, dtype=torch.int8)
        self.first = torch.ones(steps + 1, envs, dtype=torch.bool, device=device)
        self.actions = zeros(steps + 1, envs, *action.shape, dtype=action_dtype)
        self.logp, self.values_ext, self.values_int = (zeros(steps + 1, envs) for _ in range(3))
        self.noise = zeros(steps + 1, envs, act.noise_size(action))
        self.beyond = zeros(steps, envs)
        self.rewards = zeros(steps, envs)
        self.hidden_before = zeros(envs, policy.hidden_size)
        self.reward_host = torch.zeros(steps, envs, pin_memory=pin)
        self.done_host = torch.zeros(steps, envs, dtype=torch.bool, pin_memory=pin)
        # Views are made once: at hundreds of steps a rollout, making them is a share of the wall time.
        self._desks = [[self._desk(t, rows) for t in range(steps)] for rows in env.groups]
        self._outbox = [(self.actions_host[rows], self.actions_now[rows]) for rows in env.groups]
        self._decide = compiled(decide, config, device)
        self._think = [Replay(partial(self.think, g, rows), config, device) for g, rows in enumerate(env.groups)]

    def _desk(self, t: int, rows: slice) -> Desk:
        obs, first = self.frames[t + self.stack, rows], self.first[t + 1, rows]
        return Desk(self.reward_host[t, rows], self.done_host[t, rows], obs, first)

    def start(self) -> None:
        """Reset the environments. The next rollout begins where the last one ended: after its last row."""
        self.frames[-1].copy_(self.env.reset())
        self.first[-1].fill_(True)

    @torch.no_grad()
    def collect(self, last: bool = False) -> Rollout:
        """One rollout. While one group of environments steps, the policy is evaluated for the other. Whether it is the
        last is nothing to this collector: it never works ahead."""
        steps, groups = self.config.rollout_steps, range(len(self.env.groups))
        self._begin()
        told: list[StepInfo] = []
        for t in range(steps):
            if self._closed:
                raise CancelledError("the collector is closed")
            for g in groups:
                if t > 0:
                    self._receive(t - 1, g)
                told += self._act(t, g)
        for g in groups:
            self._receive(steps - 1, g)
            told.append(self._read(steps - 1, g))
        self._value_the_end()
        return self._rollout(told)

    def think(self, g: int, rows: slice) -> None:
        """Device work of one step of one group, without a word to the host."""
        t = self.step_number[g]
        known = (self.frames[:, rows], self.first[:, rows], self.age_now[rows], self.hidden[rows], self.noise[:, rows])
        with arithmetic(self.config, self.device):
            thought = self._decide(self.policy, self.env.spec.action, self.stack, t, *known)
        self.hidden[rows] = thought.hidden
        self.age_now[rows] = thought.age
        self.actions_now[rows] = thought.actions
        for book, values in (
            (self.age, thought.age),
            (self.actions, thought.actions),
            (self.logp, thought.logp),
            (self.values_ext, thought.value_ext),
            (self.values_int, thought.value_int),
        ):
            book[:, rows].index_copy_(0, t, values.unsqueeze(0))
        t += 1

    def _begin(self) -> None:
        """The end of the last rollout is the history of this one."""
        steps = self.config.rollout_steps
        self.frames[: self.stack] = self.frames[steps:].clone()
        self.first[0] = self.first[steps]
        self.hidden_before.copy_(self.hidden)
        self.step_number.zero_()
        self.beyond.zero_()
        shape = (steps, self.config.env.num_envs)
        self.noise[:steps] = act.draw_noise(self.env.spec.action, shape, self.generator, self.device)

    def _receive(self, t: int, g: int) -> None:
        """Wait for the result of step t, and send observation t + 1 to the device."""
        with self.clock("emulation"):
            arrived = self.env.wait(g)
        if self.config.bootstrap_truncated and bool(arrived.truncated.any()):
            self._bootstrap(t, self.env.groups[g], arrived)
        desk = self._desks[g][t]
        desk.done.copy_(arrived.done)
        desk.obs.copy_(arrived.obs, non_blocking=True)
        desk.first.copy_(desk.done, non_blocking=True)

    def _act(self, t: int, g: int) -> list[StepInfo]:
        """Think, and send step t; what is left of the result before it is read while the device thinks."""
        host, device = self._outbox[g]
        with self.clock("inference"):
            self._think[g]()
            host.copy_(device, non_blocking=True)
            self._thought.set()
            told = [self._read(t - 1, g)] if t > 0 else []
            self._thought.wait()
        with self.clock("emulation"):
            self.env.send(g, host)
        return told

    def _read(self, t: int, g: int) -> StepInfo:
        step = self.env.read(g)
        self._desks[g][t].reward.copy_(step.reward)
        return step.info

    def _bootstrap(self, t: int, rows: slice, arrived: PolicyInput) -> None:
        """Continue the extrinsic value past a time limit with gamma V(last observation)."""
        assert arrived.final_obs is not None, "an environment with time limits must tell its final observations"
        final, cut = arrived.final_obs.to(self.device), arrived.truncated.to(self.device)
        frames = torch.cat([self.frames[t + 1 : t + self.stack, rows], final.unsqueeze(0)])
        age = next_age(self.age_now[rows], torch.zeros_like(cut), self.stack)
        value = self.policy(stacks(frames, age), self.hidden[rows])[0].value_ext
        self.beyond[t, rows] = torch.where(cut, self.config.gamma_ext * value, 0.0)

    def _value_the_end(self) -> None:
        """Values of the observation after the last step; the next rollout thinks about it again."""
        kept = [x.clone() for x in (self.age_now, self.hidden)]
        with self.clock("inference"):
            for think in self._think:
                think()
        for x, before in zip((self.age_now, self.hidden), kept, strict=True):
            x.copy_(before)

    def _rollout(self, told: list[StepInfo]) -> Rollout:
        self.rewards.copy_(self.reward_host, non_blocking=True)
        if self.config.clip_reward:
            self.rewards.sign_()
        return Rollout(
            transitions=Transitions(self.frames, self.age, self.actions[:-1], self.stack),
            logp_TN=self.logp[:-1],
            values_ext_TpN=self.values_ext,
            values_int_TpN=self.values_int,
            rewards_ext_TN=self.rewards,
            beyond_TN=self.beyond,
            done_TN=self.first[1:],
            first_TN=self.first[:-1],
            hidden_NH=self.hidden_before,
            episodes=[episode for info in told for episode in info.episodes],
            rooms_entered=[room for info in told for room in info.entered],
        )

    def learning(self) -> AbstractContextManager[None]:
        """Where learning from the rollout is launched: here nothing runs beside it."""
        return nullcontext()

    def settle(self) -> None:
        """Nothing is under way between rollouts."""

    def close(self) -> None:
        """A rollout that another thread collects ends at its next step, with an error."""
        self._closed = True

    def state_dict(self) -> dict[str, Tensor]:
        """What the next rollout starts from."""
        return {
            "obs": self.frames[-1].clone(),
            "first": self.first[-1].clone(),
            "age": self.age_now.clone(),
            "hidden": self.hidden.clone(),
            "history": self.frames[self.config.rollout_steps : -1].clone(),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.frames[-1].copy_(state["obs"])
        self.first[-1].copy_(state["first"])
        self.age_now.copy_(state["age"])
        self.hidden.copy_(state["hidden"])
        self.frames[self.config.rollout_steps : -1].copy_(state["history"])


class Thought(NamedTuple):
    """What a step of acting leaves behind, a row an environment."""

    actions: Tensor
    logp: Tensor
    value_ext: Tensor
    value_int: Tensor
    hidden: Tensor
    age: Tensor


def decide(
    policy: Policy,
    action: ActionSpec,
    stack: int,
    t: Tensor,
    frames: Tensor,
    first: Tensor,
    age_N: Tensor,
    hidden_NH: Tensor,
    noise: Tensor,
) -> Thought:
    """Step t of some environments, from the books of the rollout (time first) and what was before: age and memory."""
    first_N = first.index_select(0, t)[0]
    age_N = next_age(age_N, first_N, stack)
    newest_SNX = frames.index_select(0, t + torch.arange(stack, device=t.device))
    out, hidden_NH = policy(stacks(newest_SNX, age_N), hidden_NH * (~first_N).unsqueeze(-1))
    out = PolicyOutput(*(x.float() for x in out))
    actions = act.sample(action, out.logits, noise.index_select(0, t)[0])
    logp = act.log_prob(action, out.logits, actions)
    return Thought(actions, logp, out.value_ext, out.value_int, hidden_NH, age_N)


def random_actions(env: VectorEnv, random: np.random.Generator) -> np.ndarray:
    """Uniform actions for all environments, as the paper's random agent takes them."""
    action, shape = env.spec.action, (env.num_envs, *env.spec.action.shape)
    if action.kind == "continuous":
        low = np.maximum(action.low, -1e3)
        high = np.minimum(action.high, 1e3)
        return random.uniform(low, high, shape).astype(np.float32)
    return random.integers(0, action.sizes if action.kind == "multi_discrete" else action.sizes[0], shape)
