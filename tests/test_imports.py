"""The house: imports point up the list only, so that data flows one way."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "rnd"

ROOMS = [
    "errors",
    "console",
    "config",
    "distributed",
    "presets",
    "envs",
    "actions",
    "normalize",
    "transitions",
    "networks",
    "fast",
    "partition",
    "stopwatch",
    "memory",
    "bonus",
    "rollout",
    "overlap",
    "returns",
    "ppo",
    "record",
    "redistribute",
    "train",
    "run",
    "bench",
    "report",
    "paper",
    "cli",
    "commands",
]
"""In the order in which data flows: a room may import what stands before it."""

NEVER = [("report", "train"), ("report", "run")]
"""Pictures are drawn from run folders alone."""


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    rooms = {room(name) for name in names if name.split(".")[0] == "rnd"}
    return {name for name in rooms if name in ROOMS}


def test_every_file_has_a_room():
    files = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert files - set(ROOMS) == {"__init__", "__main__"}


def test_imports_point_up():
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if here not in ROOMS:
            continue
        for other in imported(path):
            if ROOMS.index(other) > ROOMS.index(here) or (here, other) in NEVER:
                wrong.append(f"{path.relative_to(SOURCE)} imports rnd.{other}")
    assert not wrong
