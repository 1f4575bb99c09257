"""Rows 3 and 4: kill -9 at any moment. What a killed run goes on to is the run that was never killed, to the bit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from fault_helpers import FLAGS, FRAMES, Rnd, fingerprint, iterations, resume, small, start, tensorboard_steps

from rnd.checkpoint import checkpoint
from rnd.metrics import tensorboard

LONG_ENOUGH = str(10**6 * FRAMES)
EVERY = 2
ROOT = Path(__file__).parents[2]


def killed_run(folder: Path, kills: int, seed: int, game: str = "CartPole-v1") -> Path:
    """A run that is killed again and again, each time while it trains or saves."""
    path, moments = folder / "run", random.Random(seed)
    flags = [*FLAGS, "--frames", LONG_ENOUGH, "--checkpoint.every-iterations", str(EVERY)]
    program = Rnd("train", game, *flags, cwd=folder, env={"PYTHONPATH": str(ROOT)})
    for kill in range(kills):
        program.wait_for_rows(path, len(iterations(path)) + 1)
        time.sleep(moments.uniform(0, 1))
        program.popen.send_signal(signal.SIGKILL)
        code, said = program.finish()
        assert code == -signal.SIGKILL, said
        assert program.no_orphans()
        saved = checkpoint.found(path / "checkpoints")[-1]
        rows = iterations(path)
        assert rows == list(range(1, len(rows) + 1)), "a row is lost or doubled"
        assert len(rows) >= int(saved.name), "a row before the checkpoint is lost"
        if kill < kills - 1:
            program = Rnd("resume", "run", cwd=folder, env={"PYTHONPATH": str(ROOT)})
    return path


def check_killed(path: Path, folder: Path, game: str = "CartPole-v1") -> int:
    """Finish a killed run and compare it with one that was never killed; returns how long it was."""
    length = int(checkpoint.found(path / "checkpoints")[-1].name) + EVERY
    resume(path, length)
    assert iterations(path) == list(range(1, length + 1))
    assert tensorboard_steps(path) == [FRAMES * i for i in range(1, length + 1)]
    whole = start(small(game, iterations=length, checkpoint={"every_iterations": EVERY}), folder, "whole")
    assert fingerprint(path) == fingerprint(whole)
    return length


def test_killed_at_random_moments(tmp_path):
    check_killed(killed_run(tmp_path, kills=1, seed=1), tmp_path)


@pytest.mark.parametrize("game", ["examples.tensor_gridworld:make", "gymnax:CartPole-v1"])
def test_environments_on_the_device_are_killed_too(game, tmp_path):
    if game.startswith("gymnax:"):
        pytest.importorskip("gymnax")
    check_killed(killed_run(tmp_path, kills=1, seed=3, game=game), tmp_path, game)


@pytest.mark.long
def test_killed_at_50_random_moments(tmp_path):
    length = check_killed(killed_run(tmp_path, kills=50, seed=2), tmp_path)
    print(f"50 of 50 kills survived; {length} iterations, equal to the run that was never killed")


def test_killed_before_the_first_checkpoint(tmp_path):
    """A folder that is seen can be resumed: the run begins again."""
    path = start(small(), tmp_path)
    reference = fingerprint(path)
    shutil.rmtree(path / "checkpoints")
    assert "the run begins again" in resume(path)
    assert iterations(path) == [1, 2, 3, 4]
    assert fingerprint(path) == reference


@pytest.mark.parametrize("moment", ["tensors.safetensors", "state.json", "manifest.json", "rename", "prune"])
def test_killed_while_a_checkpoint_is_written(moment, broken, monkeypatch):
    """The process is killed in the middle of each file, before the rename, and while old checkpoints are removed."""
    root = broken / "checkpoints"
    last, _ = checkpoint.newest(root)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # a fork has no copies of PyTorch's other threads, and would wait for them
        arm(moment, monkeypatch)
        checkpoint.write(root, "000000005", last.metadata | {"iteration": 5}, last.state)
        checkpoint.prune(root, keep_last=1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    again, problems = checkpoint.newest(root)
    assert not problems
    assert again.path.name == ("000000005" if moment == "prune" else "000000004")
    resume(broken, 6)
    assert iterations(broken)[-1] == 6
    assert not list(root.glob("writing-*")), "what the killed run left is cleared away"


def arm(moment: str, monkeypatch) -> None:
    """Make the process kill itself at a moment."""

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def write_half(path: Path, data: bytes) -> None:
        if path.name != moment:
            path.write_bytes(data)
            return
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            die()

    if moment == "rename":
        monkeypatch.setattr(Path, "rename", die)
    elif moment == "prune":
        monkeypatch.setattr(checkpoint.shutil, "rmtree", lambda path, **_: die() if path.exists() else None)
    else:
        monkeypatch.setattr(checkpoint, "write_new", write_half)


class Clock(tensorboard.datetime):
    """The wall clock of the writer of event files, set by hand."""

    seconds = 1.9e9

    @classmethod
    def now(cls, zone=None):
        return cls.fromtimestamp(cls.seconds, zone)


@pytest.mark.parametrize("later", [0, -3600, -(10**8)])
def test_tensorboard_shows_all_rows_after_the_clock_was_set_back(later, tmp_path, monkeypatch):
    """TensorBoard reads its files in the order of their names, which begin with the time."""
    monkeypatch.setattr(tensorboard, "datetime", Clock)
    monkeypatch.setattr(Clock, "seconds", 1.9e9)
    path = start(small(iterations=2), tmp_path)
    for length in (4, 6):
        monkeypatch.setattr(Clock, "seconds", Clock.seconds + later)
        resume(path, length)
    assert tensorboard_steps(path) == [FRAMES * i for i in range(1, 7)]
