"""Collect from environments on the device: neither observations nor actions pass through the host.

Legend: T steps, N environments.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError

from torch import Generator, device

from rnd.config import Config
from rnd.envs.interface import Episode, PolicyInput
from rnd.envs.tensor_env import StepLog, TensorEnvs
from rnd.models.policy.base import Policy
from rnd.training.collector import SynchronousCollector


class TensorCollector(SynchronousCollector):
    """A `SynchronousCollector` that launches the environments' steps between its own. The host waits for the device
    once per rollout, when it reads which episodes ended."""

    env: TensorEnvs

    def __init__(
        self,
        config: Config,
        env: TensorEnvs,
        policy: Policy,
        device: device,
        generator: Generator,
        episode_memory: int = 0,
    ):
        super().__init__(config, env, policy, device, generator, episode_memory)
        self.log = StepLog(config.rollout_steps, env.num_envs, device)

    def _steps(self, before_step: Callable[[int], None] | None) -> tuple[list[Episode], list[int]]:
        bootstraps, rows = self.config.bootstrap_truncated, self.env.groups[0]
        for t, slot in enumerate(self._slots[0]):
            if self._closed:
                raise CancelledError("the collector is closed")
            if before_step is not None:
                before_step(t)
            with self.clock("inference"):
                self._store[0](self._evaluate[0]())
            with self.clock("emulation"):
                step = self.env.step_tensors(self.actions)
            if bootstraps and step.final_obs is not None:
                self._bootstrap_truncated(t, rows, PolicyInput(step.obs, step.done, step.truncated, step.final_obs))
            slot.obs.copy_(step.obs)
            slot.reward.copy_(step.reward)
            self.first.copy_(step.done)
            self.log.write(t, step)
        with self.clock("emulation"):
            return self.env.read_log(self.log, bootstraps)
