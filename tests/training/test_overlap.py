"""Acting beside the update: the same run as acting before it."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from dataclasses import replace

import pytest
import torch

from rnd.bench.synthetic import SyntheticAtari
from rnd.config import Config
from rnd.config.presets import preset
from rnd.device import partition
from rnd.device.graphs import tensors_in
from rnd.training.overlap import OverlappedCollector
from rnd.training.trainer import Trainer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class AtOnce:
    """An executor that has finished before `submit` returns."""

    def submit(self, work):
        done = Future()
        done.set_result(work())
        return done

    def shutdown(self, **_):
        pass


def config_on(device: str, **changes) -> Config:
    config = preset("montezuma")
    env = replace(config.env, num_envs=8)
    config = replace(config, env=env, rollout_steps=8, epochs=2, device=device, overlap=True, **changes)
    return replace(config, frames=6 * config.frames_per_rollout)


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
        assert torch.equal(weights(trainer.collector.actor), before)
        before = weights(trainer.collector.policy)
        assert not torch.equal(weights(trainer.collector.actor), before)
    trainer.collector.close()


def test_what_is_learned_from_is_what_was_collected():
    """Rollout by rollout, and always in the same memory, where a captured graph would look for it."""
    config = config_on("cpu")
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    collected, learned, places = [], [], set()
    collect, learn = trainer.collector.inner.collect, trainer.learn

    def watched_collect():
        rollout = collect()
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
        for part in ("moves", "tensors"):
            for name, value in other[part].items():
                assert torch.equal(mine[part][name], value), name
    assert any(state["episodes"] for state in learned)


def test_nothing_is_collected_after_the_last_rollout():
    config = config_on("cpu")
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    collect, calls = trainer.collector.inner.collect, []
    trainer.collector.inner.collect = lambda: (calls.append(1), collect())[1]
    trainer.start()
    for _ in trainer.train():
        pass
    trainer.collector.wait()
    assert len(calls) == config.iterations
    trainer.collector.close()


def test_closing_does_not_wait_for_a_whole_rollout():
    """The second Ctrl-C leaves at once."""
    config = config_on("cpu")
    envs = SyntheticAtari(config.env.num_envs)
    trainer = Trainer(config, envs)
    trainer.start()
    rows = trainer.train()
    for _ in range(OverlappedCollector.CAPTURE_ROLLOUTS):
        next(rows)
    trainer.collector.wait()
    entered, go = threading.Event(), threading.Event()
    wait, steps = envs.wait, []

    def slow(group):
        steps.append(group)
        entered.set()
        go.wait(30)
        return wait(group)

    envs.wait = slow
    pending = trainer.collector._pending = trainer.collector._pool.submit(trainer.collector._collect)
    entered.wait(30)
    threading.Timer(0.2, go.set).start()
    trainer.collector.close()
    assert isinstance(pending.exception(), CancelledError)
    assert len(steps) <= len(envs.groups)


def weights(policy: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


@cuda
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("parted", [True, False])
def test_beside_the_update_is_the_same_on_a_gpu(fast, parted, monkeypatch):
    config = config_on("cuda", fast=fast)
    expected = rows_of(config, beside=False)
    if not parted:

        def refuse(*_):
            raise partition.LibraryError("no parts here")

        monkeypatch.setattr(partition, "_split", refuse)
    for row, other in zip(rows_of(config, beside=True), expected, strict=True):
        for name, value in other.items():
            if value is not None:
                assert row[name] == pytest.approx(value, rel=2e-2, abs=2e-3), (name, row["iteration"])
