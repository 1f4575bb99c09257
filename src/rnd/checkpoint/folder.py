"""The run folder, with the files that describe how the run was made."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rnd import __version__
from rnd.config import Config
from rnd.foundation.errors import UserError
from rnd.foundation.files import UMASK, kind_of, read_errors, read_json, write_json

PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "minigrid")
FILES = ("metrics.csv", "timing.csv")
"""Files that grow with the run: a checkpoint records their sizes and hashes, and resuming cuts them back."""
JSON = ("config.json", "run.json", "rooms.json")
FOLDERS = ("checkpoints", "tensorboard")
LONGEST_NAME = 128  # bytes


def nearest_run(path: Path) -> str:
    """Advice for a path that is no run folder: a run of that name, the run that it is a part of, or the first runs in
    it; empty where there are none."""
    near = [Path(Config.out) / path]
    if path.exists():
        near += [path.parent, *(sorted(path.iterdir()) if path.is_dir() else [])]
    runs = [str(run) for run in near if (run / "config.json").is_file()]
    return f"; nearest: {', '.join(runs[:3])}" if runs else ""


class RunFolder:
    """`config.json`, `run.json`, metrics, checkpoints and images of one run."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @staticmethod
    def create(config: Config) -> RunFolder:
        """A new folder; a taken default name gets a number, a taken chosen name is refused."""
        check_name(config.run_name)
        root = Path(config.out)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {root} cannot be made: {error.strerror}; name another folder") from error
        if not os.access(root, os.W_OK):
            raise UserError(f"--out {root} is read-only; name another folder")
        with temporary_folder(root) as path:  # a run folder that has its name can be resumed
            write_json(path / "config.json", config.to_dict())
            write_json(path / "run.json", describe_run())
            return RunFolder(claim(path, root, config.run_name, numbered=config.name is None))

    @staticmethod
    def open(path: Path) -> RunFolder:
        """An existing run folder, to write into: refuses links to outside."""
        if path.is_symlink():
            raise UserError(f"{path} is a symbolic link; name the run folder itself: {os.path.realpath(path)}")
        if not (path / "config.json").is_file():
            raise UserError(f"{path} is not a run folder: it has no config.json{nearest_run(path)}")
        inside = path.resolve()
        for parent, folders, files in os.walk(inside):
            for entry in (Path(parent, name) for name in (*folders, *files)):
                target = Path(os.path.realpath(entry)) if entry.is_symlink() else inside  # resolve() fails on loops
                if not target.is_relative_to(inside):
                    raise UserError(f"{entry} points outside the run folder, to {target}; remove this link")
        for name in (*JSON, *FILES, *FOLDERS, "lock"):
            entry = path / name
            mode = entry.lstat().st_mode if os.path.lexists(entry) else 0
            if mode and not (stat.S_ISDIR(mode) if name in FOLDERS else stat.S_ISREG(mode)):
                raise UserError(f"{entry} is {kind_of(mode)}: rnd did not write it; move it away")
        return RunFolder(path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process alone, until the process ends."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            raise UserError(f"{self.path} is in use by another process ({owner}); wait for it, or stop it") from None
        os.truncate(descriptor, 0)
        os.write(descriptor, f"pid {os.getpid()}\n".encode())
        _LOCKS.add(descriptor)
        try:
            yield
        finally:
            _LOCKS.discard(descriptor)
            os.close(descriptor)

    def clear(self) -> None:
        """Remove the temporary files that a killed process left. Only who holds the lock writes these files."""
        for name in JSON:
            for path in (*self.path.glob(f".{name}.*.tmp"), *self.path.glob(f"{name}????????.tmp")):
                path.unlink()

    def write_json(self, name: str, data: Any) -> None:
        write_json(self.path / name, data)

    def config(self) -> Config:
        path = self.path / "config.json"
        with read_errors(path, "a config"):
            return Config.from_dict(read_json(path))


_LOCKS: set[int] = set()
"""Descriptors of the locks that this process holds."""


def _release_in_child() -> None:
    """Closes the lock in forked environment workers: they must not keep the folder locked after the run has ended."""
    for descriptor in _LOCKS:
        os.close(descriptor)
    _LOCKS.clear()


os.register_at_fork(after_in_child=_release_in_child)


@contextmanager
def temporary_folder(root: Path) -> Iterator[Path]:
    """A folder that is filled first and renamed last; removed where that fails."""
    path = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
    path.chmod(0o777 & ~UMASK)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def claim(temporary: Path, root: Path, name: str, *, numbered: bool) -> Path:
    """Give a filled folder its name, or name-2 ... where it is taken; never replaces another folder."""
    number = 1
    while True:
        path = root / (name if number == 1 else f"{name}-{number}")
        if not os.path.lexists(path):
            try:
                return temporary.rename(path)
            except OSError:
                if not os.path.lexists(path):
                    raise
        if not numbered:
            raise UserError(f"{path} exists already; choose another --name, or continue it: rnd resume {path}")
        number += 1


def check_name(name: str) -> None:
    """A run name is one plain path component."""
    size = len(os.fsencode(name))
    if not name or size > LONGEST_NAME:
        raise UserError(f"a run name has 1 to {LONGEST_NAME} bytes, not {size}")
    if not name.isprintable() or "/" in name or "\\" in name or name.startswith((".", "-")):
        raise UserError(
            f"{name!r} is no run name: use letters, digits, '-', '_' and '.', no slashes; folders go to --out"
        )


def describe_run() -> dict[str, Any]:
    """Versions, git state and command line: what is needed to repeat the run."""
    return {
        "rnd": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "git": git_state(),
        "command": sys.argv,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def git_state() -> dict[str, Any] | None:
    """Commit and cleanliness of the code that runs, where it runs from a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "clean": not git("status", "--porcelain")}
    except (OSError, subprocess.TimeoutExpired):
        return None
