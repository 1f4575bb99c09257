"""Collect the next rollout while the last one is learned from (`--overlap`)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch

from rnd import partition
from rnd.fast import WARM_UP, copy_, make_current
from rnd.rollout import Collector
from rnd.transitions import Rollout


class OverlappedCollector:
    """Collects the next rollout while the caller learns from the last one.

    The rollout that is learned from was acted by the policy of one update before: not the paper's synchronous loop,
    and PPO's ratio accounts for it. The first rollouts of a process do not run beside the update, so that graphs are
    captured undisturbed; the lag is the same. On a GPU each of the two has multiprocessors of its own.
    """

    SYNCHRONOUS = 2
    """Rollouts of a run before the lag begins."""
    UNDISTURBED = WARM_UP + 1
    """Rollouts of a process before two things happen at once."""

    def __init__(self, collector: Collector):
        self.inner, self.policy = collector, collector.policy
        self.actor = collector.policy = copy.deepcopy(collector.policy)
        self.clock = collector.clock
        self._calls = 0
        """Rollouts of the run; decides the lag."""
        self._calls_here = 0
        """Rollouts of this process; decides whether the next one runs beside the update."""
        self._pending: Future[Rollout] | None = None
        self._handed: Rollout | None = None
        """The copy that is learned from; its tensors are always the same."""
        device = collector.device
        self._pool = ThreadPoolExecutor(1, "collector", initializer=make_current, initargs=(device,))
        self._acting: torch.cuda.Stream | None = None
        self._learning: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._acting, self._learning = partition.streams(device)

    def start(self) -> None:
        self.inner.start()

    def collect(self, last: bool = False) -> Rollout:
        """The last rollout, copied; the next one is under way when this returns, unless this is the last."""
        self._calls += 1
        self._calls_here += 1
        rollout = self._pending.result() if self._pending else self._work()
        self._pending = None
        with self.learning():
            rollout = self._hand_over(rollout)
            with torch.no_grad():
                torch._foreach_copy_(list(self.actor.parameters()), list(self.policy.parameters()))
        if self._calls > self.SYNCHRONOUS and not last:
            self._pending = self._pool.submit(self._work)
            if self._calls_here <= self.UNDISTURBED:
                self._pending.result()
        return rollout

    def _hand_over(self, rollout: Rollout) -> Rollout:
        if self._handed is None:
            self._handed = rollout.clone()
        else:
            copy_(self._handed, rollout)
        return replace(self._handed, episodes=rollout.episodes, rooms_entered=rollout.rooms_entered)

    def settle(self) -> None:
        """Wait for the rollout that is under way."""
        if self._pending is not None:
            self._pending.result()

    def close(self) -> None:
        """Leave the rollout that is under way at its next step; there will be no other."""
        self.inner.close()
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

    def learning(self) -> AbstractContextManager[None]:
        """Where learning from the rollout is launched."""
        return on_stream(self._learning)

    def _work(self) -> Rollout:
        """The host does not wait for the last kernels: learning is launched after them. The pinned rewards and ends are
        written again after the first thought of the next rollout, and so after they were copied."""
        with on_stream(self._acting):
            return self.inner.collect()


@contextmanager
def on_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Launch on `stream`, after what was launched before and before what is launched afterwards."""
    if stream is None:
        yield
        return
    outside = torch.cuda.current_stream()
    stream.wait_stream(outside)
    with torch.cuda.stream(stream):
        yield
    outside.wait_stream(stream)
