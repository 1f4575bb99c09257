"""docs/stable.md: its public names exist, and README, docs and examples import no others."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

import rnd
from pages import PAGES, ROOT, python_blocks

ROWS = re.findall(r"^\| `(rnd[\w.]*)` \| (.*?) \|", (ROOT / "docs" / "stable.md").read_text(), re.MULTILINE)
PUBLIC = {module: set(re.findall(r"`(\w+)`", names)) for module, names in ROWS} | {"rnd": set(rnd.__all__)}
TEXTS = [block for page in PAGES for block in python_blocks(page)]
TEXTS += [path.read_text() for path in sorted(ROOT.glob("examples/*.py"))]

OPTIONAL = {
    "rnd.plugins.sb3": "stable_baselines3",
    "rnd.plugins.torchrl": "torchrl",
    "rnd.plugins.rsl_rl": "rsl_rl",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module):
    if (needed := OPTIONAL.get(module)) is not None:
        pytest.importorskip(needed)
    assert PUBLIC[module]
    found = importlib.import_module(module)
    assert not [name for name in PUBLIC[module] if not hasattr(found, name)]


def test_docs_and_examples_import_public_names_alone():
    imports = [node for text in TEXTS for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    used = {(node.module or "", alias.name) for node in imports for alias in node.names}
    ours = {(module, name) for module, name in used if module.split(".")[0] == "rnd"}
    assert len(ours) > 8
    assert not {(module, name) for module, name in ours if name not in PUBLIC.get(module, ())}
