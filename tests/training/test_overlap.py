"""Acting beside the update: the same run as acting before it."""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from helpers import started, tiny
from rnd import envs
from rnd.bench.synthetic import SyntheticAtari
from rnd.config import Config
from rnd.config.presets import preset
from rnd.device import partition
from rnd.device.graphs import tensors_in
from rnd.training import state
from rnd.training.overlap import OverlappedCollector
from rnd.training.trainer import Trainer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class AtOnce:
    """An executor that has finished before `submit` returns."""

    def submit(self, work, *given):
        done = Future()
        done.set_result(work(*given))
        return done

    def shutdown(self, **_):
        pass


def config_on(device: str, iterations: int = 5, **changes) -> Config:
    config = preset("montezuma")
    env = replace(config.env, num_envs=8)
    changes = {"rollout_steps": 4, "epochs": 2} | changes
    config = replace(config, env=env, device=device, overlap=True, **changes)
    return replace(config, frames=iterations * config.frames_per_rollout)


def rows_of(config: Config, beside: bool) -> list[dict]:
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    assert isinstance(trainer.collector, OverlappedCollector)
    if not beside:
        trainer.collector._pool = AtOnce()
    trainer.start()
    rows = list(trainer.train())
    trainer.collector.close()
    return rows


def test_beside_the_update_is_the_same_to_the_bit_on_a_cpu():
    assert rows_of(config_on("cpu"), beside=True) == rows_of(config_on("cpu"), beside=False)


def test_the_actor_is_the_policy_of_one_update_before():
    config = config_on("cpu")
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    trainer.start()
    before = weights(trainer.collector.policy)
    for _ in trainer.train():
        assert torch.equal(weights(trainer.collector.acting_policy), before)
        before = weights(trainer.collector.policy)
        assert not torch.equal(weights(trainer.collector.acting_policy), before)
    trainer.collector.close()


def test_what_is_learned_from_is_what_was_collected():
    """Rollout by rollout, and always in the same memory, where a captured graph would look for it."""
    config = config_on("cpu")
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    collected, learned, places = [], [], set()
    collect, learn = trainer.collector.inner.collect, trainer.learn

    def watched_collect(**given):
        rollout = collect(**given)
        collected.append(rollout.state_dict())
        return rollout

    def watched_learn(rollout):
        learned.append(rollout.state_dict())
        places.add(tuple(x.data_ptr() for x in tensors_in(rollout) if x.numel()))
        return learn(rollout)

    trainer.collector.inner.collect, trainer.learn = watched_collect, watched_learn
    trainer.start()
    for _ in trainer.train():
        pass
    trainer.collector.close()
    assert len(learned) == config.iterations
    assert len(places) == 1
    # what was collected last, nothing learns from
    for mine, other in zip(learned, collected[: len(learned)], strict=True):
        assert mine["episodes"] == other["episodes"]
        for kind in ("transitions", "tensors"):
            for name, value in other[kind].items():
                assert torch.equal(mine[kind][name], value), name
    assert any(state["episodes"] for state in learned)


def test_nothing_is_collected_after_the_last_rollout():
    config = config_on("cpu")
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    collect, calls = trainer.collector.inner.collect, []
    trainer.collector.inner.collect = lambda **given: (calls.append(1), collect(**given))[1]
    trainer.start()
    for _ in trainer.train():
        pass
    trainer.collector.wait()
    assert len(calls) == config.iterations
    trainer.collector.close()


def test_closing_does_not_wait_for_a_whole_rollout():
    """The second Ctrl-C leaves at once."""
    config = config_on("cpu")
    environments = SyntheticAtari(config.env.num_envs)
    trainer = Trainer(config, environments)
    trainer.start()
    rows = trainer.train()
    for _ in range(OverlappedCollector.CAPTURE_ROLLOUTS):
        next(rows)
    trainer.collector.wait()
    entered, go = threading.Event(), threading.Event()
    wait, steps = environments.wait, []

    def slow(group):
        steps.append(group)
        entered.set()
        go.wait(30)
        return wait(group)

    environments.wait = slow
    pending = trainer.collector._pending = trainer.collector._pool.submit(trainer.collector._collect)
    entered.wait(30)
    threading.Timer(0.2, go.set).start()
    trainer.collector.close()
    assert isinstance(pending.exception(), CancelledError)
    assert len(steps) <= len(environments.groups)


def weights(policy: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


class Slowed:
    """Makes one of the two threads the slower one."""

    def __init__(self, function, seconds):
        self.function, self.seconds = function, seconds

    def __call__(self, *given, **named):
        time.sleep(self.seconds)
        return self.function(*given, **named)


def test_a_state_waits_for_the_running_rollout_before_it_reads_the_environments(monkeypatch):
    """In whatever order its parts are asked for."""
    parts = state.own_parts
    monkeypatch.setattr(state, "own_parts", lambda trainer: dict(reversed(parts(trainer).items())))
    config = tiny(overlap=True, iterations=9)
    with closing(envs.make(config)) as env, closing(envs.make(config)) as other:
        env.wait = Slowed(env.wait, 0.002)
        trainer = started(config, env)
        rows = trainer.train()
        for _ in range(5):
            next(rows)
        saved = copy.deepcopy(trainer.state_dict())
        again = Trainer(config, other)
        again.load_state_dict(saved)
        assert list(again.train()) == list(rows)
        trainer.collector.close()
        again.collector.close()


def test_on_another_number_of_ranks_the_policy_that_learns_acts():
    config = config_on("cpu")
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    trainer.start()
    rows = trainer.train()
    for _ in range(3):
        next(rows)
    (resharded,) = OverlappedCollector.reshard([trainer.collector.state_dict()], 1)
    other = Trainer(replace(config, seed=9), SyntheticAtari(config.env.num_envs))
    other.policy.load_state_dict(trainer.policy.state_dict())
    assert not torch.equal(weights(other.collector.acting_policy), weights(trainer.policy))
    other.collector.load_state_dict(resharded)
    assert torch.equal(weights(other.collector.acting_policy), weights(trainer.policy))
    for each in (trainer, other):
        each.collector.close()


def refreshed(monkeypatch, capture_rollouts: int, slow: str = "") -> list[dict]:
    monkeypatch.setattr(OverlappedCollector, "CAPTURE_ROLLOUTS", capture_rollouts)
    config = config_on("cpu", overlap_refresh="epoch")
    trainer = Trainer(config, synthetic := SyntheticAtari(config.env.num_envs))
    if slow == "acting":
        synthetic.wait = Slowed(synthetic.wait, 0.01)
    if slow == "learning":
        trainer.learner._epoch = Slowed(trainer.learner._epoch, 0.05)
    trainer.start()
    rows = list(trainer.train())
    trainer.collector.close()
    return rows


def test_refreshed_weights_do_not_depend_on_which_thread_is_faster(monkeypatch):
    alternating = refreshed(monkeypatch, capture_rollouts=99)
    assert refreshed(monkeypatch, 0, slow="acting") == alternating
    assert refreshed(monkeypatch, 0, slow="learning") == alternating
    assert rows_of(config_on("cpu"), beside=True) != alternating


@pytest.mark.parametrize("epochs", [1, 2, 3, 5])
def test_a_segment_acts_with_the_weights_after_its_epoch(epochs):
    """Also where the steps do not divide into segments, and where there are more epochs than steps."""
    config = config_on("cpu", overlap_refresh="epoch", iterations=4, epochs=epochs)
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    acted, learned = [], []
    collect, after_epoch, learn = trainer.collector.inner.collect, trainer.collector.after_epoch, trainer.learn

    def watched_collect(before_step=None):
        def before(t):
            if before_step is not None:
                before_step(t)
            acted[-1].append(weights(trainer.collector.acting_policy))

        acted.append([])
        return collect(before_step=before)

    def watched_learn(rollout):
        learned.append([weights(trainer.policy)])
        return learn(rollout)

    def watched_after(number):
        learned[-1].append(weights(trainer.policy))
        after_epoch(number)

    trainer.collector.inner.collect, trainer.learn = watched_collect, watched_learn
    trainer.collector.after_epoch = watched_after
    trainer.start()
    list(trainer.train())
    trainer.collector.close()
    steps, lag = config.rollout_steps, OverlappedCollector.LAG_ROLLOUTS
    for n in range(lag + 1, config.iterations):
        for t, used in enumerate(acted[n]):
            assert torch.equal(used, learned[n - 1][t * epochs // steps]), (n, t)


def test_a_refreshed_run_continues_to_the_bit():
    config = tiny(overlap=True, overlap_refresh="epoch", iterations=8)
    whole, trainer = [], Trainer(config, envs.make(config))
    trainer.start()
    state = None
    for row in trainer.train():
        whole.append(row)
        if row["iteration"] == 4:
            state = copy.deepcopy(trainer.state_dict())
    trainer.collector.close()
    other = Trainer(config, envs.make(config))
    assert other.load_state_dict(state)
    assert list(other.train()) == whole[4:]
    other.collector.close()


def test_an_error_while_acting_reaches_the_learner(monkeypatch):
    """Also in the first rollouts, where the learner waits for segments."""
    config = config_on("cpu", overlap_refresh="epoch")
    trainer = Trainer(config, synthetic := SyntheticAtari(config.env.num_envs))
    trainer.start()
    rows = trainer.train()
    for _ in range(OverlappedCollector.LAG_ROLLOUTS + 1):
        next(rows)
    trainer.collector.wait()

    def broken(group):
        raise ValueError("broken")

    monkeypatch.setattr(synthetic, "wait", broken)
    with pytest.raises(ValueError, match="broken"):
        list(rows)
    trainer.collector.close()


@cuda
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("split", [True, False])
def test_beside_the_update_is_the_same_on_a_gpu(fast, split, monkeypatch):
    config = config_on("cuda", fast=fast)
    expected = rows_of(config, beside=False)
    if not split:

        def refuse(*_):
            raise partition.LibraryError("no partitions here")

        monkeypatch.setattr(partition, "_split", refuse)
    for row, other in zip(rows_of(config, beside=True), expected, strict=True):
        for name, value in other.items():
            if value is not None:
                assert row[name] == pytest.approx(value, rel=2e-2, abs=2e-3), (name, row["iteration"])
