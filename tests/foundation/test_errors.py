"""Messages that name a package: the one that is installed, never the stranger's `rnd` of the package index."""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

from rnd.foundation.errors import install

ROOT = Path(__file__).parents[2]


def distribution(folder, name, script="rnd.cli:main"):
    """The metadata of an editable installation: it lists none of the package's files."""
    path = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    path.mkdir()
    (path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (path / "entry_points.txt").write_text(f"[console_scripts]\nrnd = {script}\n")


@pytest.mark.parametrize(
    ("installed", "named"),
    [
        ((), "rnd-exploration"),  # a checkout on PYTHONPATH
        (("rnd-exploration",), "rnd-exploration"),
        (("our-fork",), "our-fork"),
        (("rnd", "rnd-exploration"), "rnd-exploration"),  # the first is left from an earlier installation
    ],
)
def test_an_extra_is_of_the_distribution_that_is_installed(installed, named, tmp_path, monkeypatch):
    distribution(tmp_path, "strangers-rnd", "rnd:main")
    for name in installed:
        distribution(tmp_path, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert len(list(importlib.metadata.distributions())) == 1 + len(installed)
    assert install("ray") == f'pip install "{named}[ray]"'


def test_nothing_tells_people_to_install_the_strangers_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "rnd-exploration" and project["scripts"] == {"rnd": "rnd.cli:main"}
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    assert not [path.name for path in files if re.search(r"pip install \S*\brnd[\[\"'`\s]", path.read_text())]
