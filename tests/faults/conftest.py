from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from fault_helpers import small, start


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A finished run with the checkpoints of iterations 3 and 4. Copy it before changing it."""
    return start(small(checkpoint={"every_iterations": 1}), tmp_path_factory.mktemp("finished"))


@pytest.fixture
def broken(finished, tmp_path) -> Path:
    """A copy of the finished run, to break."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


class Disk:
    """A tiny file system of its own."""

    def __init__(self, path: Path):
        self.path = path

    def resize(self, kilobytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", self.path], check=True)


@pytest.fixture
def disk(tmp_path):
    """A tmpfs of 1 MB, where this user may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1024k", "tmpfs", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a tiny disk cannot be mounted here ({done.stderr.strip()}); run as root to test a full disk")
    yield Disk(path)
    subprocess.run(["umount", "-l", path], check=True)
