"""Collect the next rollout while the last one is learned from (`--overlap`)."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from rnd.data.transitions import Rollout
from rnd.device.devices import set_device
from rnd.device.graphs import WARM_UP, copy_tensors_, tensors_in
from rnd.device.partition import SMPartition, split_sms
from rnd.models.policy.base import Policy
from rnd.training.collector import SynchronousCollector


class OverlappedCollector:
    """Collects the next rollout while the caller learns from the last one.

    From the second rollout on, the policy that acted is one update older than the policy that learns: not the paper's
    synchronous loop, and PPO's ratio accounts for it. With `--overlap-refresh epoch` the acting policy takes over the
    weights after every epoch of the update that runs beside it. The first rollouts of a process do not run beside the
    update, so that graphs are captured undisturbed; the lag is the same. On a GPU each of the two has its own
    multiprocessors.
    """

    LAG_ROLLOUTS = 2
    """Calls of `collect` in a run that do not start the next rollout before they return."""
    CAPTURE_ROLLOUTS = WARM_UP + 1
    """Calls of `collect` in a process after which acting runs beside the update."""

    def __init__(self, collector: SynchronousCollector, policy: Policy):
        """`collector` acts with a policy of its own, a copy of `policy`, which learns."""
        self.inner, self.policy, self.acting_policy = collector, policy, collector.policy
        self.clock = collector.clock
        self._calls = 0
        """Calls of `collect` in the run; decide the lag."""
        self._process_calls = 0
        """Calls of `collect` in this process; decide whether the next rollout runs beside the update."""
        self._pending: Future[Rollout] | None = None
        self._learner_copy: Rollout | None = None
        """The copy that is learned from; its tensors are always the same."""
        config, device = collector.config, collector.device
        self._refresh = EpochRefresh(policy, self.acting_policy, config.epochs, config.rollout_steps, device)
        self._refreshes = config.overlap_refresh == "epoch"
        self._pool = ThreadPoolExecutor(1, "collector", initializer=set_device, initargs=(device,))
        self._acting: SMPartition | None = None
        self._learning: SMPartition | None = None
        if device.type == "cuda":
            self._acting, self._learning = split_sms(device)

    def start(self) -> None:
        self.inner.start()
        self._update_acting_policy()

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
            self._update_acting_policy()
        if self._calls > self.LAG_ROLLOUTS and not last:
            self._refresh.begin(alternate=self._process_calls <= self.CAPTURE_ROLLOUTS)
            self._pending = self._pool.submit(self._collect, self._refreshes)
            if self._process_calls <= self.CAPTURE_ROLLOUTS:
                self._refresh.wait_for_segment(0) if self._refreshes else self._pending.result()
        return rollout

    def after_epoch(self, number: int) -> None:
        if self._refreshes and self._pending is not None:
            self._refresh.publish(number)

    def _update_acting_policy(self) -> None:
        """Weights and statistics of the policy that learns."""
        with torch.no_grad():
            copy_state_(self.acting_policy, state_tensors(self.policy))

    def _copy_for_learner(self, rollout: Rollout) -> Rollout:
        if self._learner_copy is None:
            self._learner_copy = rollout.clone()
        else:
            copy_tensors_(tensors_in(self._learner_copy), tensors_in(rollout))
        return replace(self._learner_copy, episodes=rollout.episodes, rooms_entered=rollout.rooms_entered)

    def wait(self) -> None:
        if self._pending is not None:
            self._pending.result()

    def close(self) -> None:
        self.inner.close()
        self._refresh.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def state_dict(self) -> dict[str, Any]:
        """Waits for the rollout that is being collected: it is part of the state."""
        pending = self._pending.result() if self._pending else None
        return {
            "inner": self.inner.state_dict(),
            "actor": self.acting_policy.state_dict(),
            "calls": self._calls,
            "pending": pending.state_dict() if pending else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "inner" not in state:  # resharded: start as a new collector does
            self.inner.load_state_dict(state)
            self.acting_policy.load_state_dict(self.policy.state_dict())
            return
        self.inner.load_state_dict(state["inner"])
        self.acting_policy.load_state_dict(state["actor"])
        self._calls = int(state["calls"])
        if state["pending"] is not None:
            self._pending = Future()
            self._pending.set_result(Rollout.from_state(state["pending"], self.inner.device))

    @staticmethod
    def reshard(states: list[dict[str, Any]], world: int) -> list[dict[str, Any]]:
        """States of `world` ranks. A rollout that waits to be learned from belongs to the old ranks and is dropped."""
        return SynchronousCollector.reshard([state.get("inner", state) for state in states], world)

    def learner_stream(self) -> AbstractContextManager[None]:
        return self._learning.use() if self._learning else nullcontext()

    def _collect(self, refresh: bool = False) -> Rollout:
        """The host does not wait for the last kernels: learning is launched after them. The pinned host buffers are
        written again after the first policy step of the next rollout, and so after they were copied."""
        try:
            with self._acting.use() if self._acting else nullcontext():
                return self.inner.collect(before_step=self._refresh.before_step if refresh else None)
        finally:
            self._refresh.finish()


class EpochRefresh:
    """Hands the learner's weights to the acting policy after every epoch, at fixed steps of the rollout.

    The rollout has as many segments as the update has epochs. Segment k acts with the weights after epoch k of the
    update that runs beside it (segment 0 with those before the update), so that the result does not depend on which of
    the two threads is faster. The learner copies its weights and goes on; the acting thread waits for its copy.
    """

    def __init__(self, policy: Policy, acting_policy: Policy, epochs: int, steps: int, device: torch.device):
        self.policy, self.acting_policy, self.device = policy, acting_policy, device
        self.segment_of = {-(-steps * k // epochs): k for k in range(1, epochs)}
        """First step of a segment, to the segment's number."""
        self._copies: dict[int, list[torch.Tensor]] = {}
        self._events: dict[int, torch.cuda.Event] = {}
        self._changed = threading.Condition()
        self._published = self._reached = 0
        self._alternate = self._finished = self._closed = False

    def begin(self, alternate: bool) -> None:
        """A rollout is about to be collected. `alternate`: the learner waits while a segment is collected."""
        with self._changed:
            self._published = self._reached = 0
            self._alternate, self._finished = alternate, False

    def publish(self, number: int) -> None:
        """Called by the learner after epoch `number`, on its stream."""
        if number not in self.segment_of.values():
            return
        tensors = state_tensors(self.policy)
        if number not in self._copies:
            self._copies[number] = [torch.empty_like(tensor) for tensor in tensors]
        with torch.no_grad():
            torch._foreach_copy_(self._copies[number], tensors)
        if self.device.type == "cuda":
            self._events.setdefault(number, torch.cuda.Event()).record()
        with self._changed:
            self._published = number
            self._changed.notify_all()
        if self._alternate:
            self.wait_for_segment(number)

    def wait_for_segment(self, number: int) -> None:
        """Wait until a segment is acted: the acting thread waits for the next weights, or has finished."""
        with self._changed:
            self._changed.wait_for(lambda: self._reached > number or self._finished)

    def finish(self) -> None:
        """Called by the acting thread at the end of a rollout, also of one that failed."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def before_step(self, t: int) -> None:
        """Called by the acting thread: takes over the weights where a segment begins."""
        number = self.segment_of.get(t)
        if number is None:
            return
        with self._changed:
            self._reached = number
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._published >= number or self._closed)
        if self._closed:
            raise CancelledError("the collector is closed")
        if number in self._events:
            torch.cuda.current_stream().wait_event(self._events[number])
        copy_state_(self.acting_policy, self._copies[number])

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def state_tensors(policy: Policy) -> list[torch.Tensor]:
    return list(policy.state_dict().values())


def copy_state_(policy: Policy, values: list[torch.Tensor]) -> None:
    torch._foreach_copy_(state_tensors(policy), values)
