"""Planned runs, scale and the pictures of half-done figures."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rnd import cli
from rnd.errors import UserError
from rnd.paper.drawing import draw_recipe
from rnd.paper.plan import Scale, State, planned_runs
from rnd.paper.recipes import RECIPES

STORED = Path(__file__).parents[1] / "report" / "stored"


def test_figures_share_their_runs(tmp_path):
    """The RND arm with the paper's defaults is one run per seed, for all figures."""
    paths = [
        {run.path for run in planned_runs(RECIPES[name](), Scale(), tmp_path, only=arm, seed=1)}
        for name, arm in (("figure5", "int-0.99-ext-0.999"), ("figure6", "cnn-128"), ("figure8", "rnd"))
    ]
    assert paths[0] == paths[1] == paths[2]
    assert len({run.path for run in planned_runs(RECIPES["figure4"](), Scale(), tmp_path)}) == 30


def test_scale_shrinks_frames_environments_and_seeds_alone():
    config = RECIPES["figure3"]().arms[0].config
    small = Scale(0.0001).config(config)
    assert small.env.num_envs == 12  # 128 / 10 = 12.8, a multiple of 4
    assert small.frames % small.frames_per_rollout == 0
    assert 196_608 <= small.frames < 196_608 + small.frames_per_rollout
    assert small.keep == 4 / 12  # the predictor's batch: 32 / 10 = 3.2 environments, at least 4
    same = replace(small, env=config.env, bonus_options=config.bonus_options, frames=config.frames)
    assert same == config  # nothing else has changed
    assert [Scale(0.0001).seeds(n) for n in (1, 3, 5, 10)] == [1, 2, 2, 2]
    assert Scale(0.5).seeds(10) == 8
    assert Scale(1).config(config) is config and Scale(1).describe(RECIPES["figure3"]()) is None
    text = Scale(0.0001).describe(RECIPES["figure3"]())
    assert text == f"{small.frames:,} frames per run (×0.0001), 12 environments, 2 of 5 seeds"


@pytest.mark.parametrize("factor", [1, 0.3, 0.01, 0.001, 0.0003])
def test_scaled_arms_of_figure6_stay_apart_and_train_the_predictor_on_equal_batches(factor):
    arms = [Scale(factor).config(arm.config) for arm in RECIPES["figure6"]().arms[:3]]
    smallest = arms[0].env.num_envs
    assert len({config.env.num_envs for config in arms}) == 3 and arms[0].keep == 1
    assert [config.keep * config.env.num_envs for config in arms] == pytest.approx([smallest] * 3)


@pytest.mark.parametrize("factor", [0, -1, 1.5])
def test_a_scale_outside_is_refused(factor):
    with pytest.raises(UserError, match="at most 1"):
        Scale(factor)


def test_one_arm_and_one_seed(tmp_path):
    found = planned_runs(RECIPES["figure3"](), Scale(), tmp_path, only="episodic-0.99", seed=4)
    assert [(run.arm.name, run.seed) for run in found] == [("episodic-0.99", 4)]
    with pytest.raises(UserError, match=r"nonepisodic-0\.99"):
        planned_runs(RECIPES["figure3"](), Scale(), tmp_path, only="nonepisodic")
    with pytest.raises(UserError, match=r"figure1 has only seed 1, not 2"):
        planned_runs(RECIPES["figure1"](), Scale(), tmp_path, seed=2)
    with pytest.raises(UserError, match=r"seeds 1 to 2 at this scale, not 3"):
        planned_runs(RECIPES["figure3"](), Scale(5e-7), tmp_path, seed=3)


def store(planned, name):
    """Copy a stored run into the folder of a planned run, with the planned config."""
    shutil.copytree(STORED / name, planned.path)
    config = replace(planned.config, frames=12 * planned.config.frames_per_rollout)
    (planned.path / "config.json").write_text(json.dumps(config.to_dict()))


def test_states_and_a_half_done_picture(tmp_path):
    recipe, scale = RECIPES["figure3"](), Scale(1e-5)
    found = planned_runs(recipe, scale, tmp_path)
    assert {run.state() for run in found} == {State.MISSING}
    store(found[0], "rnd-s1")
    store(found[1], "rnd-s3")
    assert [run.state() for run in found[:3]] == [State.FINISHED, State.PARTIAL, State.MISSING]
    paths = draw_recipe(recipe, found, scale, tmp_path, iqm=False)
    assert paths[0].name == "figure3-scale-1e-05.png"
    with paths[2].open() as file:
        rows = list(csv.DictReader(file))
    assert {row["line"] for row in rows} == {"non-episodic, γ_I = 0.999", "non-episodic, γ_I = 0.99"}
    assert {row["measure"] for row in rows} == {"return_mean", "rooms"}


def test_table1_compares_with_the_paper(tmp_path):
    recipe = RECIPES["table1"]()
    found = planned_runs(recipe, Scale(), tmp_path)
    rnd = [run for run in found if run.arm.name == "montezuma-rnd"]
    for run, name in zip(rnd, ("rnd-s1", "rnd-s2"), strict=False):
        store(run, name)
    paths = draw_recipe(recipe, found, Scale(), tmp_path, iqm=False)
    with paths[2].open() as file:
        row = next(r for r in csv.DictReader(file) if (r["game"], r["method"]) == ("Montezuma's Revenge", "RND"))
    last = []
    for name in ("rnd-s1", "rnd-s2"):
        with (STORED / name / "metrics.csv").open() as file:
            last.append(float(list(csv.DictReader(file))[-1]["return_mean"]))
    assert float(row["mean"]) == pytest.approx(sum(last) / 2)
    assert float(row["standard_error"]) == pytest.approx(abs(last[0] - last[1]) / 2)
    assert (row["runs"], row["paper"]) == ("2", "8152")


def command(*words):
    with pytest.raises(SystemExit) as stop:
        cli.main(["paper", *words])
    return stop.value.code


def test_a_dry_run_prints_every_run_and_writes_nothing(tmp_path, capsys):
    assert command("figure3", "--scale", "1e-5", "--dry-run", "--out", str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert out.count("to run     ") == 6 and "scaled:" in out
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_all_experiments(capsys):
    assert command("--list") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in RECIPES) and "181.86 G frames" in out


def test_experiments_without_arms_parse_their_own_flags(tmp_path, capsys):
    assert command("prediction-errors", "--seeds", "1", "--steps", "1", "--out", str(tmp_path)) == 0
    assert (tmp_path / "prediction-errors.csv").exists()
    assert command("figure2", "--classes", "1", "2", "--seeds", "0") == 2  # a flag with two values
    assert "--seeds must be greater than 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["figure33"], ["figure3", "--only", "x"], ["figure3", "--scale", "2"], ["figure3", "--jobs", "0"], []]
)
def test_wrong_arguments_give_one_line(words, capsys):
    assert command(*words) == 2
    assert capsys.readouterr().err.count("\n") == 1
