"""The benchmark of the detector: its other detectors detect, its table and its file agree."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "novelty.py"


@pytest.fixture(scope="module")
def benchmark():
    pytest.importorskip("sklearn")
    spec = importlib.util.spec_from_file_location("novelty_benchmark", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_detector_finds_what_is_far_away(benchmark):
    random = np.random.default_rng(0)
    train, normal, new = random.normal(size=(300, 20)), random.normal(size=(50, 20)), 9 + random.normal(size=(50, 20))
    for name in benchmark.DETECTORS:
        if name != "pca error":  # far away within the plane of its components
            row = benchmark.measure(benchmark.Case("test", "far", 0, train, normal, new), name)
            assert row.auroc > 0.95, name


def test_the_stored_results_are_whole(benchmark):
    rows = benchmark.read(benchmark.RESULTS)
    cases = {row[:3] for row in rows}
    assert len(rows) == len(cases) * len(benchmark.DETECTORS)
    assert all(f"| {name} |" in benchmark.table(rows) for name in benchmark.DETECTORS)
