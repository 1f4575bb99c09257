"""What the source distribution contains: code and docs, no results."""

import fnmatch
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LARGEST = 3_000_000
"""Bytes before compression; with results and runs there are 60 million."""


def test_the_source_distribution_is_small():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    excluded = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["sdist"]["exclude"]
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    kept = [name for name in names if not any(fnmatch.fnmatch(name, f"{pattern}/*") for pattern in excluded)]
    assert sum((ROOT / name).stat().st_size for name in kept) < LARGEST
    assert not [name for name in kept if name.startswith(("results/", "runs-in-progress/"))]
