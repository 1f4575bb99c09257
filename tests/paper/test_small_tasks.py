"""The benchmark of small tasks: what is done again, its table, and one task in full."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("small_tasks")


def line(task, bonus, seed, score, steps=None):
    return {"task": task, "bonus": bonus, "seed": seed, "score": score, "steps_to_goal": steps}


def test_what_is_in_the_file_is_not_done_again(bench, tmp_path, monkeypatch, capsys):
    out = tmp_path / "results.jsonl"
    out.write_text(json.dumps(line("Taxi", "rnd", 1, -200)) + "\n")
    flags = ["--tasks", "Taxi", "--seeds", "1", "2", "--bonuses", "rnd", "none", "--out", str(out), "--list"]
    monkeypatch.setattr("sys.argv", ["small_tasks.py", *flags])
    bench.main()
    assert capsys.readouterr().out.splitlines() == ["Taxi, none, 1", "Taxi, rnd, 2", "Taxi, none, 2"]


def test_the_table_has_the_middle_of_the_scores_and_who_reached_the_goal(bench):
    scores = (-200, -120, -110, -130, 0)
    runs = [line("MountainCar", "rnd", i, score, 1000 * i or None) for i, score in enumerate(scores)]
    row = bench.table(runs).splitlines()[-1]
    assert row.startswith("| MountainCar | -130 | 600,000 | rnd | 5 | -120.00 (")
    assert row.endswith("| 4 of 5 | 2,500 |")


def test_a_task_is_trained_or_given_up(bench, monkeypatch):
    monkeypatch.setitem(bench.TASKS, "Taxi", replace(bench.TASKS["Taxi"], steps=1))
    assert bench.train("Taxi", "rnd", 1, deadline=float("inf"))["steps"] == 2048
    assert bench.train("Taxi", "rnd", 1, deadline=0.0) is None


@pytest.mark.long
@pytest.mark.parametrize(("bonus", "reached"), [("rnd", True), ("none", False)])
def test_deep_sea_needs_the_bonus(bench, bonus, reached, monkeypatch):
    """A smaller square than the recorded one (20): 10,000 dives for 65,536 sequences of actions."""
    task = replace(bench.TASKS["DeepSea-20"], env="rnd/DeepSea-16", steps=160_000)
    monkeypatch.setitem(bench.TASKS, "DeepSea-16", task)
    result = bench.train("DeepSea-16", bonus, 1, deadline=float("inf"))
    assert (result["steps_to_goal"] is not None) == reached


@pytest.mark.long
@pytest.mark.parametrize(("bonus", "reached"), [("rnd", True), ("none", False)])
def test_mountain_car_needs_the_bonus(bench, bonus, reached):
    result = bench.train("MountainCar", bonus, 1, deadline=float("inf"))
    assert (result["steps_to_goal"] is not None) == reached
