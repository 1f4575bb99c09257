"""Imports point up the README's source map, so that data flows one way, and no two modules import each other."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rnd"
PACKAGES = re.findall(r"^  (\w+)(?:\.py|/) ", (ROOT / "README.md").read_text(), re.MULTILINE)
"""In the order of the source map: a package, or a module beside the packages, may import what stands above it."""

NEVER = [("report", "training.trainer"), ("report", "run")]
"""Images are drawn from run folders alone."""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")} | {"": SOURCE / "__init__.py"}


def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {name.removeprefix("rnd.") for name in names if name.startswith("rnd.")}
    return {name if name in MODULES else name.rpartition(".")[0] for name in ours} - {""}


def package(module: str) -> str:
    return module.split(".")[0]


def test_the_source_map_lists_every_package_once():
    assert {package(name) for name in MODULES} - {"", "__init__", "__main__"} == {*PACKAGES}
    assert len(PACKAGES) == len({*PACKAGES})


@pytest.mark.parametrize("name", PACKAGES)
def test_imports_point_up(name):
    wrong = [
        f"{module} imports {other}"
        for module, path in MODULES.items()
        if package(module) == name
        for other in imported(path)
        if PACKAGES.index(package(other)) > PACKAGES.index(name)
        or any(name == here and (other + ".").startswith(there + ".") for here, there in NEVER)
    ]
    assert not wrong


def test_no_modules_import_each_other():
    """Also not inside functions, and not through a third one."""
    try:
        TopologicalSorter({module: imported(path) - {module} for module, path in MODULES.items() if module}).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def test_the_image_of_the_layers_has_every_package_in_the_same_order():
    page = (ROOT / "docs" / "architecture.md").read_text()
    layers = re.search(r"^```\n( what a run is.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert layers is not None
    rows = [line[17:] for line in layers[1].splitlines() if re.match(r" \w", line)]
    assert [name.rstrip("/") for row in rows for name in row.split()] == PACKAGES
