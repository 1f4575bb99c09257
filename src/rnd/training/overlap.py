"""Collect the next rollout while the last one is learned from (`--overlap`)."""

from __future__ import annotations

import copy
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from rnd.data.transitions import Rollout
from rnd.device.graphs import WARM_UP, copy_tensors_, set_device, tensors_in
from rnd.device.partition import SMPartition, split_sms
from rnd.training.collector import Collector


class OverlappedCollector:
    """Collects the next rollout while the caller learns from the last one.

    From the second rollout on, the policy that acted is one update older than the policy that learns: not the paper's
    synchronous loop, and PPO's ratio accounts for it. The first rollouts of a process do not run beside the update, so
    that graphs are captured undisturbed; the lag is the same. On a GPU each of the two has its own multiprocessors.
    """

    LAG_ROLLOUTS = 2
    """Calls of `collect` in a run that do not start the next rollout before they return."""
    CAPTURE_ROLLOUTS = WARM_UP + 1
    """Calls of `collect` in a process after which acting runs beside the update."""

    def __init__(self, collector: Collector):
        self.inner, self.policy = collector, collector.policy
        self.actor = collector.policy = copy.deepcopy(collector.policy)
        self.clock = collector.clock
        self._calls = 0
        """Calls of `collect` in the run; decide the lag."""
        self._process_calls = 0
        """Calls of `collect` in this process; decide whether the next rollout runs beside the update."""
        self._pending: Future[Rollout] | None = None
        self._learner_copy: Rollout | None = None
        """The copy that is learned from; its tensors are always the same."""
        device = collector.device
        self._pool = ThreadPoolExecutor(1, "collector", initializer=set_device, initargs=(device,))
        self._acting: SMPartition | None = None
        self._learning: SMPartition | None = None
        if device.type == "cuda":
            self._acting, self._learning = split_sms(device)

    def start(self) -> None:
        self.inner.start()
        self._update_actor()

    def compile(self) -> Rollout:
        return self.inner.compile()

    def collect(self, last: bool = False) -> Rollout:
        """The newest complete rollout, copied. The next one is being collected when this returns, unless `last`."""
        self._calls += 1
        self._process_calls += 1
        rollout = self._pending.result() if self._pending else self._collect()
        self._pending = None
        with self.learner_stream():
            rollout = self._copy_for_learner(rollout)
            self._update_actor()
        if self._calls > self.LAG_ROLLOUTS and not last:
            self._pending = self._pool.submit(self._collect)
            if self._process_calls <= self.CAPTURE_ROLLOUTS:
                self._pending.result()
        return rollout

    def _update_actor(self) -> None:
        """Weights and statistics of the policy that learns."""
        with torch.no_grad():
            now, new = (list(module.state_dict().values()) for module in (self.actor, self.policy))
            torch._foreach_copy_(now, new)

    def _copy_for_learner(self, rollout: Rollout) -> Rollout:
        if self._learner_copy is None:
            self._learner_copy = rollout.clone()
        else:
            copy_tensors_(tensors_in(self._learner_copy), tensors_in(rollout))
        return replace(self._learner_copy, episodes=rollout.episodes, rooms_entered=rollout.rooms_entered)

    def wait(self) -> None:
        """Wait for the rollout that is being collected."""
        if self._pending is not None:
            self._pending.result()

    def close(self) -> None:
        """End the rollout that is being collected at its next step. No other can be collected."""
        self.inner.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def state_dict(self) -> dict[str, Any]:
        """Waits for the rollout that is being collected: it is part of the state."""
        pending = self._pending.result() if self._pending else None
        return {
            "inner": self.inner.state_dict(),
            "actor": self.actor.state_dict(),
            "calls": self._calls,
            "pending": pending.state_dict() if pending else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "inner" not in state:  # resharded: start as a new collector does
            self.inner.load_state_dict(state)
            self.actor.load_state_dict(self.policy.state_dict())
            return
        self.inner.load_state_dict(state["inner"])
        self.actor.load_state_dict(state["actor"])
        self._calls = int(state["calls"])
        if state["pending"] is not None:
            self._pending = Future()
            self._pending.set_result(Rollout.from_state(state["pending"], self.inner.device))

    @staticmethod
    def reshard(states: list[dict[str, Any]], world: int) -> list[dict[str, Any]]:
        """States of `world` ranks. A rollout that waits to be learned from belongs to the old ranks and is dropped."""
        return Collector.reshard([state.get("inner", state) for state in states], world)

    def learner_stream(self) -> AbstractContextManager[None]:
        """Where learning from the rollout is launched."""
        return self._learning.use() if self._learning else nullcontext()

    def _collect(self) -> Rollout:
        """The host does not wait for the last kernels: learning is launched after them. The pinned host buffers are
        written again after the first policy step of the next rollout, and so after they were copied."""
        with self._acting.use() if self._acting else nullcontext():
            return self.inner.collect()
