"""Collect from environments on the device: neither observations nor actions pass through the host.

Legend: T steps, N environments.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import cached_property

from rnd.envs.interface import Episode, PolicyInput
from rnd.envs.tensor_env import StepLog, TensorEnvs
from rnd.training.collector import SynchronousCollector


class TensorCollector(SynchronousCollector):
    """A `SynchronousCollector` that launches the environments' steps between its own. The host waits for the device
    once per rollout, when it reads which episodes ended."""

    env: TensorEnvs

    @cached_property
    def log(self) -> StepLog:
        """Of the rollout that is collected now."""
        return StepLog(self.config.rollout_steps, self.env.num_envs, self.device)

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
