"""The run folder: where a run lives, and what says how it was made."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rnd import __version__
from rnd.config import Config
from rnd.errors import UserError

PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "minigrid")
LONGEST_NAME = 128


class RunFolder:
    """`config.json`, `run.json`, metrics, checkpoints and pictures of one run."""

    def __init__(self, path: Path):
        self.path = path

    @staticmethod
    def create(config: Config) -> RunFolder:
        """A new folder; a taken default name gets a number, a taken chosen name is refused."""
        check_name(config.run_name)
        root = Path(config.out)
        path = root / config.run_name
        number = 2
        while path.exists():
            if config.name is not None:
                raise UserError(f"{path} exists already; choose another --name, or continue it: rnd resume {path}")
            path = root / f"{config.run_name}-{number}"
            number += 1
        path.mkdir(parents=True)
        folder = RunFolder(path)
        folder.write_json("config.json", config.to_dict())
        folder.write_json("run.json", describe_run())
        return folder

    def write_json(self, name: str, data: Any) -> None:
        write_atomically(self.path / name, json.dumps(data, indent=2) + "\n")

    def read_json(self, name: str) -> Any:
        return json.loads((self.path / name).read_text())

    def config(self) -> Config:
        return Config.from_dict(self.read_json("config.json"))


def check_name(name: str) -> None:
    """A run name is one plain path component."""
    if not name or len(name) > LONGEST_NAME:
        raise UserError(f"a run name has 1 to {LONGEST_NAME} characters, not {len(name)}")
    if "\0" in name or "/" in name or "\\" in name or name in (".", "..") or name.startswith("."):
        raise UserError(
            f"{name!r} is no run name: use letters, digits, '-', '_' and '.', no slashes; folders go to --out"
        )


def write_atomically(path: Path, text: str) -> None:
    """Write beside, flush, rename: a reader sees the old file or the new one, never a half."""
    descriptor, temporary = tempfile.mkstemp(prefix=path.name, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def describe_run() -> dict[str, Any]:
    """Versions, git state and command line: what is needed to do it again."""
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
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10)
        return done.stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "clean": not git("status", "--porcelain")}
    except (OSError, subprocess.TimeoutExpired):
        return None
