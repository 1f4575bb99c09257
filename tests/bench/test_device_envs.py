"""The benchmark of environments on the device."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from helpers import on_device

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("env_id", ["examples.tensor_gridworld:make", "gymnax:CartPole-v1"])
def test_it_prints_both_speeds_and_the_waits_of_a_rollout(env_id, monkeypatch, capsys):
    if env_id.startswith("gymnax:"):
        pytest.importorskip("gymnax")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    benchmark = importlib.import_module("device_envs")
    monkeypatch.setattr(benchmark, "WARM_UP", 1)
    benchmark.measure(on_device(env_id), rollouts=2, profiled=True)
    said = capsys.readouterr().out
    speeds = [re.search(rf"{what}: ([\d,]+) steps/s", said)[1] for what in ("alone", "trained")]
    alone, trained = (int(speed.replace(",", "")) for speed in speeds)
    first, second = (float(re.search(rf"{what} step: ([\d.]+) s", said)[1]) for what in ("first", "second"))
    assert alone > trained > 0
    assert second <= first
    assert re.search(r"rollout of 16 steps: \d+ waits", said)
