"""The tests themselves: signals and processes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

INNER = """
import os, signal, subprocess, sys

def test_leaves_a_process():
    code = "import signal, time; print(repr(signal.getsignal(signal.SIGHUP)), flush=True); time.sleep(99)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    print("handler", process.stdout.readline().strip(), "pid", process.pid)
    os.kill(os.getpid(), signal.SIGHUP)  # nohup holds for the tests themselves
    assert False
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_under_nohup_programs_get_signals_and_end_with_their_test(tmp_path):
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_inner.py").write_text(INNER)
    command = ["nohup", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("handler"))
    assert "SIG_DFL" in line
    assert ended(int(line.split()[-1]))


def ended(pid: int, seconds: float = 5.0) -> bool:
    """Whether a process ends in this time. A zombie has ended."""
    stat, deadline = Path("/proc") / str(pid) / "stat", time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if stat.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False
