"""A stored run of rnd 0.1, with a rollout that waits to be learned from, continues as it would have then."""

import shutil
from pathlib import Path

import pytest

from helpers import quiet
from rnd import run
from rnd.checkpoint import checkpoint
from rnd.metrics.metrics import read_csv

STORED = Path(__file__).parent / "stored" / "run-of-0.1"


def test_a_run_of_0_1_continues(tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(STORED, folder)
    expected = read_csv(folder / "metrics.csv")
    run.resume(folder, quiet())
    found = read_csv(folder / "metrics.csv")
    assert found.keys() == expected.keys() and "clip_fraction" in found
    assert list(found["iteration"]) == list(range(1, 11))
    for name, values in expected.items():
        assert list(found[name]) == pytest.approx(list(values), rel=1e-3, abs=1e-6, nan_ok=True), name
    header = (folder / "metrics.csv").read_text().splitlines()[0]
    assert "clip_share" in header.split(",")
    newest, problems = checkpoint.newest(folder / "checkpoints")
    assert not problems and newest.metadata["iteration"] == 10
    assert checkpoint.read_manifest(newest.path)["format"] == checkpoint.FORMAT
