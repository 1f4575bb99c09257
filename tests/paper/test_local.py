"""Cells in processes: finished ones are reused, killed ones go on, failed ones are told."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from rnd import cli
from rnd.config import BonusOptions
from rnd.paper.local import LocalJobs, _sharing, frames_done
from rnd.paper.plan import Scale, State, cells
from rnd.paper.recipes import RECIPES, Arm, Recipe
from rnd.policy.mlp import WidthOptions
from rnd.presets import preset, small

ROLLOUTS = 150
"""Of the run that is killed: it must live long enough to be caught."""

PROGRAM = """
import sys
from tests_paper_recipe import recipe
from rnd import cli
from rnd.paper import recipes
recipes.RECIPES["tiny"] = recipe
cli.main(["paper", "tiny", "--jobs", "2", "--out", sys.argv[1]])
"""


def recipe(rollouts: int = 6, arms: int = 2) -> Recipe:
    """An experiment of seconds, with the form of a real one."""
    config = small("CartPole-v1")
    config = replace(
        config,
        env=replace(config.env, num_envs=4),
        bonus_options=BonusOptions(features=8, hidden=8, random_steps=16),
        policy_options=WidthOptions(8),
        rollout_steps=128,
        device="cpu",
    )
    config = replace(config, frames=rollouts * config.frames_per_rollout)
    both = (Arm("rnd", "RND", config), Arm("none", "PPO", replace(config, bonus="none")))
    return Recipe("tiny", "Tiny", both[:arms], seeds=1)


def run_all(found, jobs=2):
    return list(LocalJobs(jobs, Console(quiet=True)).run(found))


def test_cells_run_and_are_finished(tmp_path):
    found = cells(recipe(), Scale(), tmp_path)
    outcomes = run_all(found)
    assert {o.cell.arm.name for o in outcomes} == {"rnd", "none"} and not any(o.problem for o in outcomes)
    assert {cell.state() for cell in found} == {State.FINISHED}
    assert frames_done(found[0]) == 6 * 4 * 128


def test_a_failing_cell_is_told_and_the_others_go_on(tmp_path):
    good, bad = cells(recipe(2), Scale(), tmp_path)
    config = replace(bad.config, env=replace(bad.config.env, id="CartPole-v77"), name="bad")
    outcomes = {o.cell.arm.name: o.problem for o in run_all([replace(bad, config=config), good])}
    assert outcomes["rnd"] is None
    assert "exit code 2" in outcomes["none"] and "CartPole" in outcomes["none"]


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("waited in vain")


def start(folder: Path, out: Path) -> subprocess.Popen:
    """`rnd paper tiny` as a process of its own."""
    (folder / "tests_paper_recipe.py").write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_local; from test_local import ROLLOUTS\n"
        "def recipe():\n    return test_local.recipe(ROLLOUTS, 1)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(out)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def alive(folder: Path) -> list[str]:
    """Processes that still train in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if "--cell" in words and any(str(folder) in word for word in words):
            found.append(path.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_in_the_middle_and_called_again_it_completes(tmp_path, how):
    out = tmp_path / "out"
    found = cells(recipe(ROLLOUTS, 1), Scale(), out)
    first = start(tmp_path, out)
    wait_for(lambda: any(frames_done(cell) > 0 for cell in found))
    first.send_signal(how)
    first.communicate(timeout=60)
    wait_for(lambda: not alive(out))  # no orphan goes on training
    assert any(cell.state() is not State.FINISHED for cell in found)
    assert not (out / "tiny.png").exists()

    second = start(tmp_path, out)
    said, _ = second.communicate(timeout=120)
    assert second.returncode == 0, said
    assert "to resume" in said and (out / "tiny.png").exists()
    assert {cell.state() for cell in found} == {State.FINISHED}
    for cell in found:
        iterations = [line.split(",")[0] for line in (cell.path / "metrics.csv").read_text().splitlines()[1:]]
        assert iterations == [str(i) for i in range(1, ROLLOUTS + 1)]  # no row lost, none doubled
    if how is signal.SIGINT:
        written = [json.loads((cell.path / "run.json").read_text()) for cell in found]
        assert any(about.get("resumed") for about in written)

    before = {cell.path: (cell.path / "metrics.csv").stat().st_mtime_ns for cell in found}
    (out / "tiny.png").unlink()
    third = start(tmp_path, out)
    said, _ = third.communicate(timeout=60)
    assert third.returncode == 0 and "1 run, 1 finished" in said and (out / "tiny.png").exists()
    assert before == {cell.path: (cell.path / "metrics.csv").stat().st_mtime_ns for cell in found}


def test_figure1_trains_an_agent_and_plays_it(tmp_path, monkeypatch, capsys):
    """The command from nothing to the video, on a grid instead of Montezuma's Revenge."""
    config = small("MiniGrid-Empty-5x5-v0")
    options = BonusOptions(features=8, hidden=8, random_steps=16)
    config = replace(config, env=replace(config.env, num_envs=4), bonus_options=options, frames=512, device="cpu")
    tiny = Recipe("figure1", "Figure 1", (Arm("rnd", "RND", config),), seeds=1)
    monkeypatch.setitem(RECIPES, "figure1", lambda: tiny)
    with pytest.raises(SystemExit) as stop:
        cli.main(["paper", "figure1", "--episodes", "2", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert stop.value.code == 0, said
    assert all((tmp_path / f"figure1{ending}").stat().st_size for ending in (".mp4", ".png", ".svg", ".csv"))


def test_cells_share_the_cores():
    atari = preset("montezuma")
    assert _sharing(atari, 3).env.workers == 3
    chosen = replace(atari, env=replace(atari.env, workers=7))
    assert _sharing(chosen, 3) == chosen
    assert _sharing(small("CartPole-v1"), 3).env.workers is None
    with mock.patch("torch.cuda.is_available", return_value=True):  # one core for the thread that acts
        assert _sharing(atari, 3).env.workers == 2
        assert _sharing(replace(atari, device="cpu"), 3).env.workers == 3


@pytest.mark.long
def test_figure3_from_nothing_to_a_picture_and_again(tmp_path):
    """The bar of the experiments: some minutes on two cores, and seconds when everything is there."""
    words = [
        sys.executable,
        "-m",
        "rnd",
        "paper",
        "figure3",
        "--scale",
        "0.000002",
        "--jobs",
        "2",
        "--out",
        str(tmp_path),
    ]
    for seconds, expected in ((600, "6 to run"), (60, "6 finished")):
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0 and expected in done.stdout, done.stdout + done.stderr
        assert (tmp_path / "figure3-scale-2e-06.png").stat().st_size > 10_000
