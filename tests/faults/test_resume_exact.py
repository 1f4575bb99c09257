"""Rows 1 and 2: the same seed gives the same run, and a stopped run goes on to the bit."""

from __future__ import annotations

import dataclasses

import pytest
from fault_helpers import FRAMES, fingerprint, iterations, resume, small, start, tensorboard_steps

from rnd.config.components import BONUSES
from rnd.envs import native

NATIVE = {"condition": not native.available(), "reason": "the native core is not built"}

RUNS = [
    ("CartPole-v1", "mlp", {}),
    ("CartPole-v1", "gru", {}),
    ("MiniGrid-MultiRoom-N2-S4-v0", "mlp", {}),
    ("MiniGrid-MultiRoom-N2-S4-v0", "gru", {}),
    ("Pendulum-v1", "mlp", {}),
    ("montezuma", "gru", {}),
    ("montezuma", "cnn", {"workers": 2}),
    pytest.param("montezuma", "cnn", {"backend": "native", "workers": 2}, marks=pytest.mark.skipif(**NATIVE)),
]


def test_same_seed_same_metrics(tmp_path):
    first, second = (start(small(), tmp_path, name) for name in ("first", "second"))
    assert (first / "metrics.csv").read_bytes() == (second / "metrics.csv").read_bytes()
    assert fingerprint(first) == fingerprint(second)
    other = start(dataclasses.replace(small(), seed=2), tmp_path, "other")
    assert (first / "metrics.csv").read_bytes() != (other / "metrics.csv").read_bytes()


@pytest.mark.parametrize(("game", "policy", "env"), RUNS)
def test_resumed_to_the_bit(game, policy, env, tmp_path):
    whole = start(small(game, 3, policy=policy, env=env, epochs=2), tmp_path, "whole")
    halves = start(small(game, 2, policy=policy, env=env, epochs=2), tmp_path, "halves")
    said = resume(halves, 3)
    assert "resumed at iteration 2" in said
    assert iterations(halves) == [1, 2, 3]
    assert fingerprint(halves) == fingerprint(whole)


@pytest.mark.parametrize("bonus", sorted(BONUSES))
def test_every_bonus_is_resumed_to_the_bit(bonus, tmp_path):
    whole = start(small(iterations=3, bonus=bonus), tmp_path, "whole")
    halves = start(small(iterations=2, bonus=bonus), tmp_path, "halves")
    resume(halves, 3)
    assert fingerprint(halves) == fingerprint(whole)


@pytest.mark.parametrize("bonus", ["rnd", "noveld"])
def test_an_overlapped_run_is_resumed_to_the_bit(bonus, tmp_path):
    """The rollout that is under way at a checkpoint belongs to it; at the end of a run there is none."""
    config = {"overlap": True, "bonus": bonus}
    whole = start(small(iterations=6, **config), tmp_path, "whole")
    broken = start(small(iterations=6, **config, checkpoint={"every_iterations": 2}), tmp_path, "broken")
    (broken / "checkpoints" / "000000006" / "manifest.json").unlink()
    resume(broken)
    assert fingerprint(broken) == fingerprint(whole)
    halves = start(small(iterations=4, **config), tmp_path, "halves")
    resume(halves, 6)
    assert fingerprint(halves) == fingerprint(whole)


def test_a_finished_run_is_left_alone(finished, broken):
    said = resume(broken)
    assert "is finished" in said and "--frames N, with N above " in said
    assert fingerprint(broken) == fingerprint(finished)


def test_tensorboard_has_no_gap_and_no_doubled_row(tmp_path):
    """Rows that were written after the checkpoint that the run went on from are dropped by TensorBoard."""
    path = start(small(iterations=4, checkpoint={"every_iterations": 2}), tmp_path)
    (path / "checkpoints" / "000000004" / "manifest.json").unlink()
    resume(path, 6)
    assert tensorboard_steps(path) == [FRAMES * i for i in range(1, 7)]
