"""Every example runs, at a small size."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = {
    "own_ppo_loop": {"total_steps": 600, "num_envs": 4, "num_steps": 25, "warm_up_steps": 10},
    "sb3_wrapper": {"total_steps": 600, "num_envs": 4},
    "sb3_rndppo": {"total_steps": 600, "num_envs": 4},
    "sb3_minigrid": {"env_id": "MiniGrid-Empty-5x5-v0", "total_steps": 2100, "num_envs": 16},
    "torchrl_ppo": {"total_steps": 400, "num_envs": 4, "num_steps": 25},
}
NEEDS = {name: "torchrl" if name.startswith("torchrl") else "stable_baselines3" for name in SIZES if "own" not in name}


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_examples_are_run_here():
    # tests of their subjects run these
    elsewhere = {"novelty_alarm", "tensor_gridworld", "rsl_rl_corridor", "crafter_env"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SIZES} | elsewhere


@pytest.mark.parametrize("name", SIZES)
def test_examples_run(name, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    module = load(name)
    out = {"out": str(tmp_path / "saved")} if name.startswith("sb3") else {}
    result = module.main(module.Args(**{"env_id": "rnd/DeepSea-4"} | SIZES[name] | out))
    assert np.isfinite(result).all()
    assert not out or (tmp_path / "saved").exists() or (tmp_path / "saved.zip").exists()


def test_the_off_policy_example_runs():
    pytest.importorskip("stable_baselines3")
    module = load("sb3_wrapper")
    args = module.Args(algorithm="DQN", env_id="rnd/DeepSea-4", total_steps=400, num_envs=4)
    assert np.isfinite(module.main(args))


@pytest.mark.long
def test_the_detector_raises_the_alarm_before_the_episode_fails():
    module = load("novelty_alarm")
    assert module.main(module.Args(fault="dead-motor", episodes=40)) > 0.9


def test_the_example_of_the_detector_is_short():
    assert len((EXAMPLES / "novelty_alarm.py").read_text().splitlines()) < 60


def test_the_notebook_says_what_it_needs_and_shows_what_it_does():
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    assert "pip install jupyter" in "".join(cells[0]["source"])
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", ()) for output in outputs) == 2
    assert any("with the bonus: mean return" in "".join(output.get("text", ())) for output in outputs)
