"""The benches run on a CPU and say what they measured."""

import json

import pytest

from rnd.cli import dispatch


def test_learner(capsys):
    flags = ["--num-envs", "4", "--rollout-steps", "4", "--repeats", "1", "--precision", "float32", "--device", "cpu"]
    assert dispatch(["bench", "learner", *flags, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["num_envs"] == 4
    assert result["frames_per_second"] == pytest.approx(4 * 4 * 4 / (result["milliseconds"] / 1e3))


def test_train_prints_limits_and_shares(capsys):
    flags = ["--num-envs", "4", "--rollout-steps", "4", "--iterations", "2", "--workers", "1", "--device", "cpu"]
    assert dispatch(["bench", "train", *flags, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert sum(result["shares"].values()) == pytest.approx(1.0)
    assert result["learner_alone"] < result["emulator_alone"]  # on a CPU, so that is the limit
    assert result["of_its_limit"] == pytest.approx(result["overlapped"] / result["learner_alone"])
    assert 0 < result["synchronous"] < result["emulator_alone"]
