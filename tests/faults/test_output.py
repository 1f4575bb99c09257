"""Row 36: standard output that is closed, full, or cannot write a character. Training goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_helpers import FLAGS, FRAMES, SOURCE, iterations

ROWS = 20


def shell(command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command line that begins with `rnd`; returns what it leaves on standard output and error."""
    command = f"{sys.executable} -m {command}"
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"} | variables
    arguments = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100)


TRAIN = " ".join(["rnd train CartPole-v1", *FLAGS, "--frames", str(ROWS * FRAMES), "--env.workers 2"])


@pytest.mark.parametrize("where", ["> /dev/full", "2>&1 | head -1", ">&- 2>&- <&-"])
def test_training_goes_on(where, tmp_path):
    done = shell(f"{TRAIN} {where}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert iterations(tmp_path / "run") == list(range(1, ROWS + 1))
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    if where == "> /dev/full":
        assert "standard output fails (No space left on device)" in done.stderr


def test_an_environment_that_prints_to_a_closed_pipe(tmp_path):
    (tmp_path / "loud.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class make(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        print('left' if action else 'right', flush=True)\n"
        "        return super().step(action)\n"
    )
    done = shell(f"{TRAIN.replace('CartPole-v1', 'loud:make')} | head -3", tmp_path)
    assert done.returncode == 0, done.stderr
    assert iterations(tmp_path / "run")[-1] == ROWS


def test_help_for_a_reader_that_leaves(tmp_path):
    done = shell("rnd --help | head -1", tmp_path)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


def test_an_encoding_without_the_characters(tmp_path):
    done = shell(f"{TRAIN} --name ä", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "run folder: \\xe4" in done.stdout, done.stderr


def test_a_narrow_terminal_gets_its_help_in_time(tmp_path):
    begun = time.monotonic()
    done = shell("rnd train --help", tmp_path, COLUMNS="5", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "--gamma-ext" in done.stdout
    assert time.monotonic() - begun < 30
