"""Imports point up the README's source map, so that data flows one way."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rnd"
MODULES = re.findall(r"^  (\w+)(?:\.py|/) ", (ROOT / "README.md").read_text(), re.MULTILINE)
"""In the order of the source map: a module may import what stands above it."""

NEVER = [("report", "trainer"), ("report", "run")]
"""Pictures are drawn from run folders alone."""


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.split(".")[1] for name in names if name.startswith("rnd.")} & {*MODULES}


def test_the_source_map_lists_every_module_once():
    files = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert files - {"__init__", "__main__"} == {*MODULES}
    assert len(MODULES) == len({*MODULES})


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_up(module):
    paths = [SOURCE / f"{module}.py", *(SOURCE / module).rglob("*.py")]
    wrong = [
        f"{path.relative_to(SOURCE)} imports rnd.{other}"
        for path in paths
        if path.exists()
        for other in imported(path)
        if MODULES.index(other) > MODULES.index(module) or (module, other) in NEVER
    ]
    assert not wrong
