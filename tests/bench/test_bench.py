"""The benches run on a CPU and say what they measured."""

import contextlib
import json
import os
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from rnd import run
from rnd.bench import kernels, learner, start, train
from rnd.bench.progress import Progress
from rnd.checkpoint import zoo
from rnd.checkpoint.export import export_agent, load_agent
from rnd.cli import dispatch
from rnd.config.components import resolve
from rnd.config.presets import preset
from rnd.foundation.errors import RunError, UserError
from rnd.training.trainer import Trainer

FILES = (Path(__file__).parents[2] / "benchmarks").glob("*.py")
BENCHMARKS = sorted(path for path in FILES if "__main__" in path.read_text())  # the others are environments


def test_learner(capsys):
    flags = ["--num-envs", "4", "--rollout-steps", "4", "--repeats", "1", "--precision", "float32", "--device", "cpu"]
    bonuses = ["rnd", "snd-v"]
    assert dispatch(["bench", "learner", *flags, "--policy", "cnn", "--json", "--bonus", *bonuses]) == 0
    out, progress = capsys.readouterr()
    results = json.loads(out)
    assert [result["bonus"] for result in results] == bonuses
    for number, (line, result) in enumerate(zip(progress.splitlines(), results, strict=True), 1):
        what = f"{number} of 2: {result['bonus']}, cnn, 4 environments, 4 samples per step, float32"
        shown = f"{what} ... {result['milliseconds']:,.1f} ms"
        assert line.startswith(shown) and (" left" in line) == (number < 2)
        assert result["num_envs"] == 4
        assert result["frames_per_second"] == pytest.approx(4 * 4 * 4 / (result["milliseconds"] / 1e3))


def test_learner_by_size_of_the_minibatch(capsys, monkeypatch):
    """The paper's networks from 4,096 to 256 samples per step, in a table that 80 columns hold."""
    monkeypatch.setattr(learner, "on_gpu", lambda device: True)
    configs = learner.configs_of(learner.Options())
    wanted = [(policy, samples) for policy in ("cnn", "gru") for samples in (4096, 2048, 1024, 512, 256)]
    assert [(config.policy, kernels.samples_of(config)) for config in configs] == wanted
    results = [
        learner.LearnerSpeed("rnd", policy, 128, "tf32", True, samples, 1102.2, 12.757, 0.625, 1_641_000.0, 15.4)
        for policy, samples in wanted
    ]
    Console(width=80).print(learner.speed_table(results))
    title, *rows = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert title.strip() == "learner alone, 128 environments, tf32, fast, rnd"
    assert [row for row in rows if "4,096" in row] == [
        f"│ {policy}    │ 4,096   │ 12.757  │ 0.625 │ 1,102.2   │ 1,641,000 │ 15.4    │" for policy in ("cnn", "gru")
    ]


def test_a_measurement_that_fails_leaves_the_line_to_its_error(capsys):
    progress = Progress(2)
    assert progress("one", lambda: 1, str) == 1
    with pytest.raises(KeyError):
        progress("another", lambda: {}["key"], str)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("1 of 2: one ... 1; about 0:00:00 left") and second == "2 of 2: another ... "


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    """The environments alone are measured for a moment."""
    monkeypatch.setattr(train, "SECONDS", 0.05)


def test_train_prints_limits_and_shares(capsys):
    flags = ["--num-envs", "4", "--rollout-steps", "4", "--iterations", "2", "--workers", "1", "--device", "cpu"]
    assert dispatch(["bench", "train", *flags, "--minibatches", "2", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["samples"] == 8
    assert sum(result["shares"].values()) == pytest.approx(1.0)
    assert result["learner_alone"] < result["emulator_alone"]  # on a CPU, so that is the limit
    assert result["of_its_limit"] == pytest.approx(result["overlapped"] / result["learner_alone"])
    assert 0 < result["synchronous"] < result["emulator_alone"]


def test_train_takes_a_recipe(monkeypatch):
    measured = []
    monkeypatch.setattr(train, "measure_learner", lambda config: measured.append(config) or 1 / 0)
    recipe = ["--recipe", "efficient", "--num-envs", "16", "--device", "cpu", "--policy", "gru"]
    for flags in ([], ["--minibatches", "8"]):
        with pytest.raises(ZeroDivisionError):
            dispatch(["bench", "train", *recipe, *flags])
    assert [(config.policy, config.minibatches) for config in measured] == [("gru", 16), ("gru", 8)]
    with pytest.raises(UserError, match="unknown recipe 'eficient'; nearest: efficient"):
        dispatch(["bench", "train", "--recipe", "eficient"])


@pytest.fixture
def agents(tmp_path, monkeypatch):
    """A zoo of two agents of Montezuma's Revenge that have hardly trained: policy to name."""
    monkeypatch.setenv("RND_ZOO", str(tmp_path))
    for policy in ("cnn", "gru"):
        env = replace(preset("montezuma").env, num_envs=2, workers=0)
        config = resolve(replace(preset("montezuma"), bonus="none", policy=policy, env=env, device="cpu"))
        config = replace(config, rollout_steps=2, minibatches=1, frames=16, out=str(tmp_path / "runs"), name=policy)
        export_agent(run.start(config, Console(quiet=True)).path, tmp_path / policy / zoo.AGENT, half=True)
    return {"cnn": "zoo:cnn", "gru": "zoo:gru"}


def test_train_goes_on_from_an_agent(agents, monkeypatch):
    flags = ["--num-envs", "4", "--rollout-steps", "4", "--iterations", "1", "--workers", "1", "--device", "cpu"]
    begun, start = [], Trainer.start

    def recording(trainer):
        begun.append({name: value.clone() for name, value in trainer.policy.state_dict().items()})
        start(trainer)

    monkeypatch.setattr(Trainer, "start", recording)
    assert dispatch(["bench", "train", *flags, "--json", "--agent", agents["cnn"]]) == 0
    trained = load_agent(zoo.locate(agents["cnn"])).policy.state_dict()
    assert len(begun) >= 2  # synchronous and overlapped
    for state in begun[-2:]:
        assert all(torch.equal(state[name], value) for name, value in trained.items())
    for other in (["--agent", agents["gru"]], ["--game", "venture", "--agent", agents["cnn"]]):
        with pytest.raises(UserError, match="is an agent of ALE/MontezumaRevenge-v5 with"):
            dispatch(["bench", "train", *flags, *other])


@pytest.mark.long  # two runs from their command on
def test_start_measures_twice_with_caches_of_its_own(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    flags = ["--num-envs", "4", "--rollout-steps", "4", "--device", "cpu", "--no-overlap"]
    assert dispatch(["bench", "start", *flags, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [(result["num_envs"], result["cache"]) for result in results] == [(4, "empty"), (4, "filled")]
    assert all(1 < result["seconds"] < 120 for result in results)
    assert not [*tmp_path.iterdir()]


def test_start_reports_a_run_that_fails_or_takes_too_long(tmp_path):
    flags = ["--num-envs", "4", "--rollout-steps", "4", "--device", "cpu", "--game", "venture"]
    with pytest.raises(RunError, match=r"no iteration within 0\.1 s; nearest: a larger --limit"):
        dispatch(["bench", "start", *flags, "--limit", "0.1"])
    config = replace(start.Options(device="cpu").config(4), out=str(tmp_path), name="run")
    ranks = os.environ | {"WORLD_SIZE": "2", "RANK": "5"}  # which do not fit together
    with pytest.raises(RunError, match="the run ended before its first iteration: rnd: the environment variables"):
        start.seconds_to_start(config, ranks, 60.0)


def script(path: Path, *arguments: str | Path) -> None:
    """What `python PATH ARGUMENTS` does, in this process: importing PyTorch takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        patch.syspath_prepend(path.parent)
        runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_benchmarks_explain_themselves(path, capsys):
    """And so can be imported: what they use of the package is still there."""
    with pytest.raises(SystemExit) as left:
        script(path, "--help")
    assert left.value.code in (0, None) and "usage" in capsys.readouterr().out


def test_the_overhead_of_a_bonus(tmp_path):
    path = next(path for path in BENCHMARKS if path.stem == "bonus_overhead")
    flags = ["--bonuses", "none", "rnd", "--envs", "4", "--steps", "4", "--rounds", "1", "--out"]
    with contextlib.suppress(SystemExit):
        script(path, *flags, tmp_path / "table.csv")
    assert [line.split(",")[0] for line in (tmp_path / "table.csv").read_text().split()] == ["bonus", "none", "rnd"]
