"""Rows 20, 21, 24, 41 and 47: Ctrl-C, other signals, and a second process in the same folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_helpers import FLAGS, FRAMES, IMAGE_FLAGS, SOURCE, Rnd, fingerprint, iterations, resume, small, start

from rnd.checkpoint import checkpoint
from rnd.foundation.errors import UserError

LONG = ["--frames", str(10**6 * FRAMES)]
ATARI = ["--env.workers", "2", "--env.backend", "ale"]


def test_one_ctrl_c_saves_and_leaves_no_orphans(tmp_path):
    program = Rnd("train", "venture", *IMAGE_FLAGS, *ATARI, "--frames", str(10**9), cwd=tmp_path)
    program.wait_for_rows(tmp_path / "run", 1)
    program.popen.send_signal(signal.SIGINT)
    code, said = program.finish()
    assert code == 130, said
    assert "rnd report run" in said and "to continue: rnd resume run" in said
    assert int(checkpoint.found(tmp_path / "run" / "checkpoints")[-1].name) == iterations(tmp_path / "run")[-1]
    assert program.no_orphans()


def test_two_ctrl_c_leave_at_once(tmp_path):
    """An iteration of minutes is not waited for."""
    long_iteration = ["--rollout-steps", "100000", "--env.workers", "2", "--frames", str(10**9)]
    program = Rnd("train", "CartPole-v1", *FLAGS, *long_iteration, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not checkpoint.found(tmp_path / "run" / "checkpoints"):
        assert program.popen.poll() is None and time.monotonic() < deadline, program.finish()
        time.sleep(0.05)
    program.popen.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert program.popen.poll() is None, "the first Ctrl-C waits for the iteration"
    program.popen.send_signal(signal.SIGINT)
    before = time.monotonic()
    code, said = program.finish(20)
    assert code == 130, said
    assert "Traceback" not in said
    assert time.monotonic() - before < 5
    assert program.no_orphans()


@pytest.mark.parametrize("number", [signal.SIGHUP, pytest.param(signal.SIGUSR1, marks=pytest.mark.long)])
def test_a_closed_session_or_a_clusters_warning_saves_too(number, tmp_path):
    stopped_and_resumed(number, tmp_path, workers=2)


def test_sigterm_saves_and_resume_continues(tmp_path):
    stopped_and_resumed(signal.SIGTERM, tmp_path, workers=0)


def stopped_and_resumed(number: signal.Signals, tmp_path: Path, workers: int) -> None:
    """All processes get the signal, the environment workers too, as from a scheduler."""
    program = Rnd("train", "CartPole-v1", *FLAGS, *LONG, "--env.workers", str(workers), cwd=tmp_path)
    path = tmp_path / "run"
    program.wait_for_rows(path, 2)
    for pid in program.orphans():
        os.kill(pid, number)
    code, said = program.finish()
    assert code == 75 and f"{number.name}: finishing this iteration" in said, said
    done = iterations(path)[-1]
    resume(path, done + 2)
    whole = start(small(iterations=done + 2, env={"workers": workers}), tmp_path, "whole")
    assert fingerprint(path) == fingerprint(whole)


def test_a_signal_to_several_runs_saves_all(tmp_path):
    """Row 47. The parent alone gets it."""
    flags = [*FLAGS, *LONG, "--seeds", "1,2", "--jobs", "2"]
    program = Rnd("train", "CartPole-v1", *flags, cwd=tmp_path)
    paths = [tmp_path / "run-s1", tmp_path / "run-s2"]
    for path in paths:
        program.wait_for_rows(path, 1)
    program.popen.send_signal(signal.SIGHUP)
    code, said = program.finish()
    assert code == 75 and "SIGHUP: finishing" in said and "repeat the same command to continue" in said, said
    assert program.no_orphans()
    for path in paths:
        assert int(checkpoint.found(path / "checkpoints")[-1].name) == iterations(path)[-1]


def test_nohup_is_respected(tmp_path):
    nohup = ["nohup", sys.executable, "-m", "rnd"]
    program = Rnd("train", "CartPole-v1", *FLAGS, *LONG, cwd=tmp_path, program=nohup)
    program.wait_for_rows(tmp_path / "run", 1)
    program.popen.send_signal(signal.SIGHUP)
    program.wait_for_rows(tmp_path / "run", len(iterations(tmp_path / "run")) + 3)
    program.popen.send_signal(signal.SIGTERM)
    assert program.finish()[0] == 75


def test_a_killed_worker_stops_the_run_with_a_checkpoint(tmp_path):
    """Row 18, seen from the command line."""
    program = Rnd("train", "CartPole-v1", *FLAGS, *LONG, "--env.workers", "2", cwd=tmp_path)
    program.wait_for_rows(tmp_path / "run", 2)
    worker = next(pid for pid in program.orphans() if pid != program.popen.pid)
    os.kill(worker, signal.SIGKILL)
    before = time.monotonic()
    code, said = program.finish(20)
    assert code == 1 and time.monotonic() - before < 5, said
    assert "was killed by SIGKILL" in said and "rnd resume run" in said and "Traceback" not in said
    assert program.no_orphans()
    resume(tmp_path / "run", 3)
    assert iterations(tmp_path / "run") == [1, 2, 3]


HOLD = """
import sys
from pathlib import Path
from rnd.checkpoint.folder import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_process_in_a_folder_is_refused(broken, finished):
    command = [sys.executable, "-c", HOLD, str(broken)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={"PYTHONPATH": str(SOURCE)}, **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=rf"in use by another process \(pid {holder.pid}\)"):
            resume(broken, 6)
        assert fingerprint(broken) == fingerprint(finished)
        holder.kill()
    resume(broken, 6)
    assert iterations(broken)[-1] == 6


def test_a_new_run_never_takes_a_used_name(broken):
    with pytest.raises(UserError, match="exists already"):
        start(small(), broken.parent, broken.name)
