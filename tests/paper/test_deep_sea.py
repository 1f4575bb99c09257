"""DeepSea in short: the bonus finds the treasure where plain PPO does not."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from rnd.presets import preset

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.long
def test_rnd_finds_the_treasure_of_deep_sea_16_and_plain_ppo_does_not(monkeypatch):
    """A smaller square than the recorded one (20): 10,000 dives for 65,536 sequences of actions."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    solve = importlib.import_module("deep_sea").solve
    start = replace(preset("rnd/DeepSea-16"), frames=160_000, device="cpu", threads=1)
    assert solve(replace(start, bonus="rnd")).solved_at is not None
    assert solve(replace(start, bonus="none")).solved_at is None
