"""Rows 1 and 2: the same seed gives the same run, and a stopped run goes on to the bit."""

from __future__ import annotations

import dataclasses

import pytest
from fault_helpers import fingerprint, iterations, resume, small, start

RUNS = [
    ("CartPole-v1", "mlp", {}),
    ("CartPole-v1", "gru", {}),
    ("MiniGrid-MultiRoom-N2-S4-v0", "mlp", {}),
    ("MiniGrid-MultiRoom-N2-S4-v0", "gru", {}),
    ("Pendulum-v1", "mlp", {}),
    ("montezuma", "cnn", {}),
    ("montezuma", "gru", {}),
    ("montezuma", "cnn", {"workers": 2}),
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


def test_a_finished_run_is_left_alone(finished, broken):
    said = resume(broken)
    assert "is finished" in said and "--frames" in said
    assert fingerprint(broken) == fingerprint(finished)


def test_tensorboard_has_no_gap_and_no_doubled_row(tmp_path):
    """Rows that were written after the checkpoint, by a process that then died, are dropped by TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = start(small(iterations=4, checkpoint={"every_iterations": 2}), tmp_path)
    for name in ("000000004",):
        (path / "checkpoints" / name / "manifest.json").unlink()
    resume(path, 6)
    events = EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    steps = [event.step for event in events.Scalars("train/return_mean")] or None
    losses = [event.step for event in events.Scalars("train/loss")]
    per_rollout = small().frames_per_rollout
    assert losses == [per_rollout * i for i in range(1, 7)]
    assert steps is None or steps == sorted(set(steps))
