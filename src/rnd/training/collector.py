"""Collect T steps from N environments.

Legend: T steps, N environments, S stacked frames, H hidden size, X the shape of one observation.

The host copies observations into the rollout buffer. One step of one group is two pieces of device work.
`SynchronousCollector.evaluate` reads the newest frames, evaluates the policy, samples, and copies the actions to the
host. `SynchronousCollector.store` writes actions and values into the buffer at the step's index, which is on the device
too, while the environments already step. Neither synchronises with the host, so that on CUDA they are captured once as
graphs and replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from rnd.bonus import visits
from rnd.config import Config
from rnd.data.transitions import Rollout, next_age, stacks
from rnd.device.graphs import DeviceEvent, GraphedFunction, autocast, compiled
from rnd.distributed import check_keys, reshard_rows
from rnd.envs.interface import Episode, PolicyInput, StepInfo, VectorEnv
from rnd.foundation.stopwatch import Stopwatch
from rnd.models import actions as act
from rnd.models.acting import StepOutput, policy_step
from rnd.models.policy.base import Policy
from rnd.training.buffer import RolloutBuffer


class Collector(Protocol):
    """Collects rollouts: what the trainer needs of `SynchronousCollector` and `OverlappedCollector`."""

    clock: Stopwatch

    def start(self) -> None:
        """Reset the environments."""

    def compile(self) -> Rollout:
        """Compile the policy step. Returns the buffers as they are, to compile what is computed from a rollout."""

    def collect(self, last: bool = False) -> Rollout:
        """The next rollout. `last`: no other will be collected."""

    def learner_stream(self) -> AbstractContextManager[None]:
        """Where learning from the rollout is launched."""

    def after_epoch(self, number: int) -> None:
        """Epoch 1, 2, ... of the update from the rollout is launched; called inside `learner_stream`."""

    def wait(self) -> None:
        """Wait for a rollout that is being collected."""

    def close(self) -> None:
        """End a rollout that is being collected at its next step. No other can be collected."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    @staticmethod
    def reshard(states: list[dict[str, Any]], world: int) -> list[dict[str, Any]]:
        """States of `world` ranks from those of another number: environments stay in order."""


class SynchronousCollector:
    """Steps the environments with a policy, and holds the state that one rollout hands to the next."""

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
        envs, action = config.env.num_envs, env.spec.action
        self.buffer = RolloutBuffer(config, env.spec, policy.hidden_size, device, bool(episode_memory), env.device)
        self.visits = visits.EpisodeVisits(envs, episode_memory, device) if episode_memory else None
        # The state before step t. `evaluate` and `store` advance it in place.
        self.age = torch.zeros(envs, dtype=torch.int8, device=device)
        self.hidden = torch.zeros(envs, policy.hidden_size, device=device)
        self.step_index = torch.zeros(len(env.groups), 1, dtype=torch.int64, device=device)
        # What environments and policy hand to each other, where the environments are: whether the newest observation is
        # the first of an episode, and the actions.
        pin = device.type == "cuda" and env.device.type == "cpu"
        where: dict[str, Any] = {"device": env.device, "pin_memory": pin}
        self.first = torch.ones(envs, dtype=torch.bool, **where)
        self.actions = torch.zeros(envs, *action.shape, dtype=act.dtype(action), **where)
        self._slots = [self.buffer.slots(rows) for rows in env.groups]
        self._handover = [(self.first[rows], self.actions[rows]) for rows in env.groups]
        self._policy_step = compiled(policy_step, config, device) if policy.compilable else policy_step
        self._evaluate, self._store = (
            [GraphedFunction(partial(half, g, rows), config, device) for g, rows in enumerate(env.groups)]
            for half in (self.evaluate, self.store)
        )

    def start(self) -> None:
        """Reset the environments. The next rollout begins where the last one ended: after its last row."""
        self.buffer.frames[-1].copy_(self.env.reset())
        self.first.fill_(True)

    @torch.no_grad()
    def collect(self, last: bool = False, before_step: Callable[[int], None] | None = None) -> Rollout:
        """One rollout. While one group of environments steps, the policy is evaluated for the other. `before_step` is
        called with the number of every step."""
        shape = (self.config.rollout_steps, self.config.env.num_envs)
        noise_TNA = act.draw_noise(self.env.spec.action, shape, self.generator, self.device)
        self.buffer.start_rollout(self.hidden, noise_TNA)
        self.step_index.zero_()
        episodes, rooms_entered = self._steps(before_step)
        self._bootstrap_values()
        if self.visits is not None and self.buffer.first_visit is not None:
            newest = self.buffer.frames[self.buffer.stack - 1 :]
            self.buffer.first_visit.copy_(self.visits.update(newest, self.buffer.first[1:]))
        return self.buffer.rollout(episodes, rooms_entered)

    def _steps(self, before_step: Callable[[int], None] | None) -> tuple[list[Episode], list[int]]:
        """The steps of a rollout into the buffer; returns the episodes that ended and the rooms entered."""
        steps, groups = self.config.rollout_steps, range(len(self.env.groups))
        infos: list[StepInfo] = []
        for t in range(steps):
            if self._closed:
                raise CancelledError("the collector is closed")
            if before_step is not None:
                before_step(t)
            for g in groups:
                if t > 0:
                    self._receive(t - 1, g)
                infos += self._act(t, g)
        for g in groups:
            self._receive(steps - 1, g)
            infos.append(self._read(steps - 1, g))
        return [episode for info in infos for episode in info.episodes], [r for info in infos for r in info.entered]

    def evaluate(self, g: int, rows: slice) -> StepOutput:
        """Evaluate the policy for one step of one group, and copy the actions to the environments without waiting.
        Advances the policy's state in place."""
        first_N = self.first[rows].to(self.device, non_blocking=True)
        out = self._policy_output(g, rows, first_N)
        self.actions[rows].copy_(out.actions, non_blocking=True)
        self.hidden[rows] = out.hidden
        self.age[rows] = out.age
        return out

    def store(self, g: int, rows: slice, out: StepOutput) -> None:
        """Write a step into the buffer at `step_index`, and advance that."""
        t = self.step_index[g]
        self.buffer.store(t, rows, out)
        t += 1

    def _policy_output(self, g: int, rows: slice, first_N: Tensor) -> StepOutput:
        """A policy step without its writes: changes nothing."""
        buffer = self.buffer
        inputs = (buffer.frames[:, rows], first_N, self.age[rows], self.hidden[rows], buffer.noise[:, rows])
        with autocast(self.config, self.device):
            return self._policy_step(self.policy, self.env.spec.action, buffer.stack, self.step_index[g], *inputs)

    @torch.no_grad()
    def compile(self) -> Rollout:
        for g, rows in enumerate(self.env.groups):
            self._policy_output(g, rows, torch.zeros_like(self.buffer.first[0, rows]))
        return self.buffer.rollout([], [])

    def _receive(self, t: int, g: int) -> None:
        """Wait for the result of step t, and copy observation t + 1 to the device."""
        with self.clock("emulation"):
            result = self.env.wait(g)
        if self.config.bootstrap_truncated and bool(result.truncated.any()):
            self._bootstrap_truncated(t, self.env.groups[g], result)
        self._slots[g][t].obs.copy_(result.obs, non_blocking=True)
        first, _ = self._handover[g]
        first.copy_(result.done)

    def _act(self, t: int, g: int) -> list[StepInfo]:
        """Evaluate the policy and send step t. While the device works, rewards and episodes of the step before are
        read."""
        _, actions = self._handover[g]
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
        buffer = self.buffer
        final, cut = result.final_obs.to(self.device), result.truncated.to(self.device)
        frames = torch.cat([buffer.frames[t + 1 : t + buffer.stack, rows], final.unsqueeze(0)])
        age = next_age(self.age[rows], torch.zeros_like(cut), buffer.stack)
        value = self.policy(stacks(frames, age), self.hidden[rows])[0].value_ext
        buffer.truncation_bootstrap[t, rows] = torch.where(cut, self.config.gamma_ext * value, 0.0)

    def _bootstrap_values(self) -> None:
        """Values of the observation after the last step. The next rollout evaluates it again, from the same state."""
        kept = [x.clone() for x in (self.age, self.hidden)]
        with self.clock("inference"):
            for evaluate, store in zip(self._evaluate, self._store, strict=True):
                store(evaluate())
        for x, before in zip((self.age, self.hidden), kept, strict=True):
            x.copy_(before)

    def learner_stream(self) -> AbstractContextManager[None]:
        return nullcontext()

    def after_epoch(self, number: int) -> None:
        """Nothing acts meanwhile."""

    def wait(self) -> None:
        """Between calls nothing is collected."""

    def close(self) -> None:
        """A rollout that another thread collects ends at its next step, with an error."""
        self._closed = True

    def state_dict(self) -> dict[str, Any]:
        """What the next rollout starts from."""
        frames = self.buffer.frames
        return {
            "obs": frames[-1].clone(),
            "first": self.first.clone(),
            "age": self.age.clone(),
            "hidden": self.hidden.clone(),
            "history": frames[self.config.rollout_steps : -1].clone(),
            **(self.visits.state_dict() if self.visits else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.buffer.frames[-1].copy_(state["obs"])
        self.first.copy_(state["first"])
        self.age.copy_(state["age"])
        self.hidden.copy_(state["hidden"])
        self.buffer.frames[self.config.rollout_steps : -1].copy_(state["history"])
        if self.visits is not None:
            self.visits.load_state_dict(state)

    @staticmethod
    def reshard(states: list[dict[str, Any]], world: int) -> list[dict[str, Any]]:
        axes = {"obs": 0, "first": 0, "age": 0, "hidden": 0, "history": 1, **visits.AXES}
        check_keys(states[0], axes, "the collector")
        rows = {name: reshard_rows([state[name] for state in states], world, axes[name]) for name in states[0]}
        return [{name: split[rank] for name, split in rows.items()} for rank in range(world)]
