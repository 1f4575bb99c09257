"""Collect the next rollout while the last one is learned from (`--overlap`)."""

from __future__ import annotations

import copy
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import torch

from rnd.fast import Wait
from rnd.rollout import Collector, Rollout


class OverlappedCollector:
    """Collects the next rollout while the caller learns from the last one.

    The rollout that is learned from was acted by the policy of one update before: not the paper's synchronous loop,
    and PPO's ratio accounts for it. The first rollouts of a process do not run beside the update, so that graphs are
    captured undisturbed; the lag is the same.
    """

    SYNCHRONOUS = 2

    def __init__(self, collector: Collector):
        self.inner, self.policy = collector, collector.policy
        self.actor = collector.policy = copy.deepcopy(collector.policy)
        self.clock = collector.clock
        self._wait = Wait(collector.device)
        self._calls = 0
        """Rollouts of the run; decides the lag."""
        self._calls_here = 0
        """Rollouts of this process; decides whether the next one runs beside the update."""
        self._pending: Future[Rollout] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="collector")

    def start(self) -> None:
        self.inner.start()

    def collect(self) -> Rollout:
        """The last rollout, copied; the next one is under way when this returns."""
        self._calls += 1
        self._calls_here += 1
        rollout = self._pending.result() if self._pending else self._work()
        rollout = rollout.clone()
        with torch.no_grad():
            for mine, learned in zip(self.actor.parameters(), self.policy.parameters(), strict=True):
                mine.copy_(learned)
        if self._calls > self.SYNCHRONOUS:
            self._wait()
            self._pending = self._pool.submit(self._work)
            if self._calls_here <= self.SYNCHRONOUS:
                self._pending.result()
        return rollout

    def close(self) -> None:
        """Wait for the rollout that is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def state_dict(self) -> dict[str, Any]:
        """Waits for the rollout that is under way: it belongs to the state."""
        pending = self._pending.result() if self._pending else None
        return {
            "inner": self.inner.state_dict(),
            "actor": self.actor.state_dict(),
            "calls": self._calls,
            "pending": pending.state_dict() if pending else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "inner" not in state:  # dealt to another number of ranks: begin as a new collector does
            self.inner.load_state_dict(state)
            self.actor.load_state_dict(self.policy.state_dict())
            return
        self.inner.load_state_dict(state["inner"])
        self.actor.load_state_dict(state["actor"])
        self._calls = int(state["calls"])
        if state["pending"] is not None:
            self._pending = Future()
            self._pending.set_result(Rollout.from_state(state["pending"], self.inner.device))

    def _work(self) -> Rollout:
        if self.inner.device.type != "cuda":
            return self.inner.collect()
        with torch.cuda.stream(self._stream):
            rollout = self.inner.collect()
            self._stream.synchronize()
        return rollout

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(priority=-1)  # acting goes before learning
