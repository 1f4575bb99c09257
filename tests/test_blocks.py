"""The Python blocks of README and docs: they compile, and in `make test-long` they run, in order per page."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest

from pages import FILES, PAGES, ROOT, python_blocks

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
WITH_BLOCKS = [page for page in PAGES if python_blocks(page)]
SMALLER = {
    "frames=250_000": "frames=4_000",
    "learn(150_000": "learn(600",
}
"""Numbers of steps that take minutes, and those for the test."""
EXCLUDED = {
    "gae = GAE(": "part of examples/torchrl_ppo.py, which tests/test_examples.py runs",
    'train_cfg["algorithm"]["class_name"]': "part of examples/rsl_rl_corridor.py; rsl_rl is not installed everywhere",
}
"""Beginnings of blocks that are not run, and why."""
OWN = {
    "README.md": """
import gymnasium
envs = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync")
next_obs, _ = envs.reset(seed=0)
""",
    "plugins.md": """
import gymnasium, numpy as np, rnd
N, T = 8, 16
envs = gymnasium.make_vec("CartPole-v1", num_envs=N, vectorization_mode="sync")
observation_space = envs.single_observation_space
draw = np.random.default_rng(0)
observations, next_obs = (draw.normal(size=(T, N, 4)).astype(np.float32) for _ in range(2))
rewards, dones = np.ones((T, N), np.float32), np.zeros((T, N), bool)
values_ext, values_int = np.zeros((2, T + 1, N), np.float32)
rollouts = range(2)
rnd.train("MiniGrid-DoorKey-6x6-v0", frames=4_000, name="NAME", quiet=True)
obs = gymnasium.make("MiniGrid-DoorKey-6x6-v0").reset(seed=0)[0]
""",
}
"""The reader's own names, which a page uses without defining them."""


def test_the_blocks_are_found_and_compile():
    blocks = [block for page in WITH_BLOCKS for block in python_blocks(page)]
    for block in blocks:
        ast.parse(block)
    assert {"my_env.py", "my_policy.py", "my_bonus.py"} <= {*FILES}
    assert all(any(block.startswith(start) for block in blocks) for start in EXCLUDED)
    assert all(any(text in block for block in blocks) for text in SMALLER)


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    blocks = [b for b in python_blocks(page) if not b.startswith(tuple(EXCLUDED))]
    program = "\n".join([OWN.get(page.name, ""), *blocks])
    for large, small in SMALLER.items():
        program = program.replace(large, small)
    run(program, tmp_path)


@pytest.mark.long
def test_the_notebook_runs(tmp_path):
    cells = code_cells()
    run("\n".join(cells), tmp_path)
    assert list(tmp_path.glob("runs/*/watch/episode.mp4"))


def test_the_notebook_has_five_cells_and_is_small():
    assert len(code_cells()) == 5
    assert NOTEBOOK.stat().st_size < 200_000


def code_cells() -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        ast.parse(cell)
    return cells


def run(program: str, folder) -> None:
    """In a process of its own, as a reader would run it, without a window for images."""
    (folder / "program.py").write_text(program)
    environment = os.environ | {"MPLBACKEND": "Agg"}
    done = subprocess.run([sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
