"""Collect T steps from N environments.

Legend: T steps, N environments, S stacked frames, H hidden size, X the shape of one observation.

The host copies observations into the rollout's buffers. One step of one group is two pieces of device work.
`Collector.evaluate` reads the newest frames, evaluates the policy, samples, and copies the actions to the host.
`Collector.store` writes actions and values into the buffers at the step's index, which is on the device too, while the
environments already step. Neither synchronises with the host, so that on CUDA they are captured once as graphs and
replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from rnd.bonus import visits
from rnd.config import Config
from rnd.data.transitions import Rollout, Transitions, next_age, stacks
from rnd.device.graphs import DeviceEvent, GraphedFunction, autocast, compiled
from rnd.distributed import check_keys, reshard_rows
from rnd.envs.interface import PolicyInput, StepInfo, VectorEnv
from rnd.envs.spec import ActionSpec, EnvSpec
from rnd.foundation.stopwatch import Stopwatch
from rnd.models import actions as act
from rnd.models.policy.base import Policy, PolicyOutput


class StepSlot(NamedTuple):
    """Where the result of one step of one group is written: the reward on the host, the observation on the device."""

    reward: Tensor
    obs: Tensor


class Collector:
    """Steps the environments with the policy, and holds the state that one rollout hands to the next."""

    def __init__(
        self,
        config: Config,
        env: VectorEnv,
        policy: Policy,
        device: torch.device,
        generator: Generator,
        episode_memory: int = 0,
    ):
        self.config, self.env, self.policy = config, env, policy
        self.device, self.generator = device, generator
        self.clock = Stopwatch("emulation", "inference")
        self._actions_ready = DeviceEvent(device, spin=True)
        self._closed = False
        steps, envs = config.rollout_steps, config.env.num_envs
        observation, action = env.spec.observation, env.spec.action
        self.stack = observation.stack
        pin = device.type == "cuda"

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        obs_dtype = torch.uint8 if observation.kind == "image" else torch.float32
        action_dtype = torch.float32 if action.kind == "continuous" else torch.int64
        # The state before step t. `evaluate` and `store` advance it in place.
        self.age_now = zeros(envs, dtype=torch.int8)
        self.hidden = zeros(envs, policy.hidden_size)
        self.step_index = zeros(len(env.groups), 1, dtype=torch.int64)
        # What the host and a policy step hand to each other: whether the newest observation is the first of an episode,
        # and the actions.
        self.first_host = torch.ones(envs, dtype=torch.bool, pin_memory=pin)
        self.actions_host = torch.zeros(envs, *action.shape, dtype=action_dtype, pin_memory=pin)
        # The rollout's buffers: one row per step, and one for the observation after the last.
        self.frames = zeros(self.stack + steps, envs, *observation.shape, dtype=obs_dtype)
        self.age = zeros(steps + 1, envs, dtype=torch.int8)
        self.first = zeros(steps + 1, envs, dtype=torch.bool)
        self.actions = zeros(steps + 1, envs, *action.shape, dtype=action_dtype)
        self.logp, self.values_ext, self.values_int = (zeros(steps + 1, envs) for _ in range(3))
        self.noise = zeros(steps + 1, envs, act.noise_size(action))
        self.truncation_bootstrap = zeros(steps, envs)
        self.rewards = zeros(steps, envs)
        self.hidden_before = zeros(envs, policy.hidden_size)
        self.visits = visits.EpisodeVisits(envs, episode_memory, device) if episode_memory else None
        self.first_visit = zeros(steps, envs, dtype=torch.bool) if episode_memory else None
        self.reward_host = torch.zeros(steps, envs, pin_memory=pin)
        # Views are made once: with hundreds of steps per rollout, making them takes a share of the wall time.
        self._slots = [[self._slot(t, rows) for t in range(steps)] for rows in env.groups]
        self._host_views = [(self.first_host[rows], self.actions_host[rows]) for rows in env.groups]
        self._policy_step = compiled(policy_step, config, device) if policy.compilable else policy_step
        self._evaluate, self._store = (
            [GraphedFunction(partial(half, g, rows), config, device) for g, rows in enumerate(env.groups)]
            for half in (self.evaluate, self.store)
        )

    def _slot(self, t: int, rows: slice) -> StepSlot:
        return StepSlot(self.reward_host[t, rows], self.frames[t + self.stack, rows])

    def start(self) -> None:
        """Reset the environments. The next rollout begins where the last one ended: after its last row."""
        self.frames[-1].copy_(self.env.reset())
        self.first_host.fill_(True)

    @torch.no_grad()
    def collect(self, last: bool = False) -> Rollout:
        """One rollout. While one group of environments steps, the policy is evaluated for the other. `last` is for
        collectors that work ahead; this one does not."""
        steps, groups = self.config.rollout_steps, range(len(self.env.groups))
        self._start_rollout()
        infos: list[StepInfo] = []
        for t in range(steps):
            if self._closed:
                raise CancelledError("the collector is closed")
            for g in groups:
                if t > 0:
                    self._receive(t - 1, g)
                infos += self._act(t, g)
        for g in groups:
            self._receive(steps - 1, g)
            infos.append(self._read(steps - 1, g))
        self._bootstrap_values()
        if self.visits is not None and self.first_visit is not None:
            self.first_visit.copy_(self.visits.update(self.frames[self.stack - 1 :], self.first[1:]))
        return self._rollout(infos)

    def evaluate(self, g: int, rows: slice) -> StepOutput:
        """One step of one group up to its actions on the host, which it copies there without waiting. Advances in
        place: the state before the step."""
        first_N = self.first_host[rows].to(self.device, non_blocking=True)
        out = self._policy_output(g, rows, first_N)
        self.actions_host[rows].copy_(out.actions, non_blocking=True)
        self.hidden[rows] = out.hidden
        self.age_now[rows] = out.age
        return out

    def store(self, g: int, rows: slice, out: StepOutput) -> None:
        """Write a step into the rows of the buffers at `step_index`, and advance that."""
        t = self.step_index[g]
        for buffer, values in (
            (self.first, out.first),
            (self.age, out.age),
            (self.actions, out.actions),
            (self.logp, out.logp),
            (self.values_ext, out.value_ext),
            (self.values_int, out.value_int),
        ):
            buffer[:, rows].index_copy_(0, t, values.unsqueeze(0))
        t += 1

    def _policy_output(self, g: int, rows: slice, first_N: Tensor) -> StepOutput:
        """A policy step without its writes: changes nothing."""
        inputs = (self.frames[:, rows], first_N, self.age_now[rows], self.hidden[rows], self.noise[:, rows])
        with autocast(self.config, self.device):
            return self._policy_step(self.policy, self.env.spec.action, self.stack, self.step_index[g], *inputs)

    @torch.no_grad()
    def compile(self) -> Rollout:
        """Compile the policy step. Returns the buffers as they are, to compile what is computed from a rollout."""
        for g, rows in enumerate(self.env.groups):
            self._policy_output(g, rows, torch.zeros_like(self.first[0, rows]))
        return self._rollout([])

    def _start_rollout(self) -> None:
        """The end of the last rollout is the history of this one."""
        steps = self.config.rollout_steps
        self.frames[: self.stack] = self.frames[steps:].clone()
        self.hidden_before.copy_(self.hidden)
        self.step_index.zero_()
        self.truncation_bootstrap.zero_()
        shape = (steps, self.config.env.num_envs)
        self.noise[:steps] = act.draw_noise(self.env.spec.action, shape, self.generator, self.device)

    def _receive(self, t: int, g: int) -> None:
        """Wait for the result of step t, and copy observation t + 1 to the device."""
        with self.clock("emulation"):
            result = self.env.wait(g)
        if self.config.bootstrap_truncated and bool(result.truncated.any()):
            self._bootstrap_truncated(t, self.env.groups[g], result)
        self._slots[g][t].obs.copy_(result.obs, non_blocking=True)
        first, _ = self._host_views[g]
        first.copy_(result.done)

    def _act(self, t: int, g: int) -> list[StepInfo]:
        """Evaluate the policy and send step t. The rest of the result before it is read while the device works."""
        _, actions = self._host_views[g]
        with self.clock("inference"):
            out = self._evaluate[g]()
            self._actions_ready.record()
            self._store[g](out)
            infos = [self._read(t - 1, g)] if t > 0 else []
            self._actions_ready.wait()
        with self.clock("emulation"):
            self.env.send(g, actions)
        return infos

    def _read(self, t: int, g: int) -> StepInfo:
        step = self.env.read(g)
        self._slots[g][t].reward.copy_(step.reward)
        return step.info

    def _bootstrap_truncated(self, t: int, rows: slice, result: PolicyInput) -> None:
        """Continue the extrinsic value at a time limit with gamma V(last observation)."""
        assert result.final_obs is not None, "an environment with time limits must give its final observations"
        final, cut = result.final_obs.to(self.device), result.truncated.to(self.device)
        frames = torch.cat([self.frames[t + 1 : t + self.stack, rows], final.unsqueeze(0)])
        age = next_age(self.age_now[rows], torch.zeros_like(cut), self.stack)
        value = self.policy(stacks(frames, age), self.hidden[rows])[0].value_ext
        self.truncation_bootstrap[t, rows] = torch.where(cut, self.config.gamma_ext * value, 0.0)

    def _bootstrap_values(self) -> None:
        """Values of the observation after the last step. The next rollout evaluates it again, from the same state."""
        kept = [x.clone() for x in (self.age_now, self.hidden)]
        with self.clock("inference"):
            for evaluate, store in zip(self._evaluate, self._store, strict=True):
                store(evaluate())
        for x, before in zip((self.age_now, self.hidden), kept, strict=True):
            x.copy_(before)

    def _rollout(self, infos: list[StepInfo]) -> Rollout:
        self.rewards.copy_(self.reward_host, non_blocking=True)
        if self.config.clip_reward:
            self.rewards.sign_()
        return Rollout(
            transitions=Transitions(self.frames, self.age, self.actions[:-1], self.stack, self.first_visit),
            logp_TN=self.logp[:-1],
            values_ext_TpN=self.values_ext,
            values_int_TpN=self.values_int,
            rewards_ext_TN=self.rewards,
            truncation_bootstrap_TN=self.truncation_bootstrap,
            done_TN=self.first[1:],
            first_TN=self.first[:-1],
            hidden_NH=self.hidden_before,
            episodes=[episode for info in infos for episode in info.episodes],
            rooms_entered=[room for info in infos for room in info.entered],
        )

    def learner_stream(self) -> AbstractContextManager[None]:
        """Where learning from the rollout is launched: nothing runs beside it here."""
        return nullcontext()

    def wait(self) -> None:
        """Wait for a rollout that is being collected: between calls there is none here."""

    def close(self) -> None:
        """A rollout that another thread collects ends at its next step, with an error."""
        self._closed = True

    def state_dict(self) -> dict[str, Tensor]:
        """What the next rollout starts from."""
        return {
            "obs": self.frames[-1].clone(),
            "first": self.first_host.clone(),
            "age": self.age_now.clone(),
            "hidden": self.hidden.clone(),
            "history": self.frames[self.config.rollout_steps : -1].clone(),
            **(self.visits.state_dict() if self.visits else {}),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.frames[-1].copy_(state["obs"])
        self.first_host.copy_(state["first"])
        self.age_now.copy_(state["age"])
        self.hidden.copy_(state["hidden"])
        self.frames[self.config.rollout_steps : -1].copy_(state["history"])
        if self.visits is not None:
            self.visits.load_state_dict(state)

    @staticmethod
    def reshard(states: list[dict[str, Tensor]], world: int) -> list[dict[str, Tensor]]:
        """States of `world` ranks from those of another number: environments stay in order."""
        axes = {"obs": 0, "first": 0, "age": 0, "hidden": 0, "history": 1, **visits.AXES}
        check_keys(states[0], axes, "the collector")
        rows = {name: reshard_rows([state[name] for state in states], world, axes[name]) for name in states[0]}
        return [{name: split[rank] for name, split in rows.items()} for rank in range(world)]


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
        image = spec.observation.kind == "image"
        self.stack = spec.observation.stack
        shape, dtype = spec.observation.shape, torch.uint8 if image else torch.float32
        self.frames = torch.zeros(self.stack, num_envs, *shape, dtype=dtype, device=self.device)
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
