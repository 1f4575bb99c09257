"""The table of benchmarks/overlap_lag.py, from metrics that are given."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.fixture
def overlap_lag(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("overlap_lag")


def test_the_table_has_what_was_solved_and_how_far_the_policies_were(overlap_lag, monkeypatch, capsys):
    def train(task, mode, seed, out):
        solved = mode == "synchronous" or ("epoch" in mode and seed == 2)
        return {
            "frames": [10_000.0, 30_000.0, 50_000.0, 70_000.0 + seed],
            "episodes": [0.0, 5.0, 50.0, 100.0],
            "success": [float("nan"), 1.0, 0.5, 0.9 if solved else 0.89],  # that of five episodes says nothing
            "approx_kl": [9.0, 0.01, 0.03, 9.0],
            "clip_fraction": [1.0, 0.1, 0.2, 1.0],
        }

    monkeypatch.setattr(overlap_lag, "train", train)
    monkeypatch.setattr("sys.argv", ["overlap_lag.py", "--tasks", "x", "--seeds", "1", "2"])
    assert overlap_lag.main() == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| x | synchronous | 2 of 2 | 70,001 to 70,002 | 0.0200 | 15.0% |",
        "| x | --overlap | 0 of 2 |  | 0.0200 | 15.0% |",
        "| x | --overlap --overlap-refresh epoch | 1 of 2 | 70,002 to 70,002 | 0.0200 | 15.0% |",
    ]
