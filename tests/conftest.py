"""No test compiles a game unless it says so: `$CXX` names no compiler. Without a GPU, Triton interprets its kernels."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest
import torch

os.environ["CXX"] = "no-compiler-in-tests"
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory):
    """Names of code that tests train with are not remembered for the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def default_signals():
    """Programs that tests start react to signals, also under nohup or in the background of a shell: a handler, other
    than SIG_IGN, is not inherited. This process ignores them still."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(autouse=True)
def no_processes_left(monkeypatch):
    """Programs that a test has started end with it, also where it fails. They carry a mark in their environment."""
    mark = f"RND_TEST={uuid.uuid4().hex}"
    monkeypatch.setenv(*mark.split("="))
    yield
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """Processes that were started with an environment variable."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found
