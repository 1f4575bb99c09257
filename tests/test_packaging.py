"""What the distributions contain, and that the wheel alone works."""

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LARGEST = 4_000_000
"""Bytes before compression; with results there are 45 million."""


def tracked() -> list[str]:
    """The files of this checkout that git knows."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_the_source_distribution_is_small():
    excluded = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["sdist"]["exclude"]
    kept = [name for name in tracked() if not any(fnmatch.fnmatch(name, f"{pattern}/*") for pattern in excluded)]
    assert sum((ROOT / name).stat().st_size for name in kept) < LARGEST
    assert not [name for name in kept if name.startswith("results/")]


def shell(folder: Path, *command: str) -> str:
    """Run a command as a user would: not with the settings of the tests (conftest.py names no compiler)."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CXX", "VIRTUAL_ENV")
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.long
def test_the_wheel_alone_trains_watches_and_evaluates(tmp_path):
    """Source distribution, wheel from it, a clean environment with the wheel alone, an empty folder."""
    checkout, empty = tmp_path / "checkout", tmp_path / "empty"
    for name in tracked():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, checkout / name)
    for name in ("builder", "clean"):
        shell(tmp_path, sys.executable, "-m", "venv", name)
    shell(tmp_path, "builder/bin/pip", "install", "--quiet", "build")
    shell(tmp_path, "builder/bin/python", "-m", "build", "--outdir", "dist", "checkout")
    (source,), (wheel,) = tmp_path.glob("dist/*.tar.gz"), tmp_path.glob("dist/*.whl")
    assert source.stat().st_size < LARGEST and wheel.stat().st_size < LARGEST
    with tarfile.open(source) as archive:
        assert not [name for name in archive.getnames() if "/results/" in name]
    shell(tmp_path, "clean/bin/pip", "install", "--quiet", str(wheel))
    shutil.rmtree(checkout)

    empty.mkdir()
    rnd = str(tmp_path / "clean/bin/rnd")
    assert "native core: yes, " in shell(empty, rnd, "--version")
    shell(empty, rnd, "train", "--frames", "20000", "--name", "first")
    shell(empty, rnd, "watch", "runs/first")
    shell(empty, rnd, "evaluate", "runs/first")
    assert (empty / "runs/first/watch/episode.mp4").stat().st_size > 1000
    assert json.loads((empty / "runs/first/evaluation.json").read_text())["episodes"] == 100
    atari = shell(empty, rnd, "train", "montezuma", "--frames", "2048", "--env.num-envs", "4", "--rollout-steps", "16")
    assert "native" in atari
