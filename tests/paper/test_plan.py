"""Planned runs, scale and the images of half-done figures."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rnd import cli
from rnd.config import BonusOptions
from rnd.config.presets import small
from rnd.foundation.errors import UserError
from rnd.jobs.planned import State
from rnd.paper.drawing import draw_experiment, plot_of
from rnd.paper.experiments import EXPERIMENTS, Arm, Experiment
from rnd.paper.plan import Scale, planned_runs
from rnd.paper.speed import frames_per_second

STORED = Path(__file__).parents[1] / "report" / "stored"


def test_figures_share_their_runs(tmp_path):
    """The RND arm with the paper's defaults is one run per seed, for all figures."""
    paths = [
        {run.path for run in planned_runs(EXPERIMENTS[name](), Scale(), tmp_path, only=[arm], seed=1)}
        for name, arm in (("figure5", "int-0.99-ext-0.999"), ("figure6", "cnn-128"), ("figure8", "rnd"))
    ]
    assert paths[0] == paths[1] == paths[2]
    assert len({run.path for run in planned_runs(EXPERIMENTS["figure4"](), Scale(), tmp_path)}) == 30


def test_scale_shrinks_frames_environments_and_seeds_alone():
    config = EXPERIMENTS["figure3"]().arms[0].config
    small = Scale(0.0001).config(config)
    assert small.env.num_envs == 12  # 128 / 10 = 12.8, a multiple of 4
    assert small.frames % small.frames_per_rollout == 0
    assert 196_608 <= small.frames < 196_608 + small.frames_per_rollout
    assert small.keep == 4 / 12  # the predictor's batch: 32 / 10 = 3.2 environments, at least 4
    same = replace(small, env=config.env, bonus_options=config.bonus_options, frames=config.frames)
    assert same == config  # nothing else has changed
    assert [Scale(0.0001).seeds(n) for n in (1, 3, 5, 10)] == [1, 2, 2, 2]
    assert Scale(0.5).seeds(10) == 8
    assert Scale(1).config(config) is config and Scale(1).describe(EXPERIMENTS["figure3"]()) is None
    text = Scale(0.0001).describe(EXPERIMENTS["figure3"]())
    assert text == f"{small.frames:,} frames per run (×0.0001), 12 environments, 2 of 5 seeds"


@pytest.mark.parametrize("factor", [1, 0.3, 0.01, 0.001, 0.0003])
def test_scaled_arms_of_figure6_stay_apart_and_train_the_predictor_on_equal_batches(factor):
    arms = [Scale(factor).config(arm.config) for arm in EXPERIMENTS["figure6"]().arms[:3]]
    smallest = arms[0].env.num_envs
    assert len({config.env.num_envs for config in arms}) == 3 and arms[0].keep == 1
    assert [config.keep * config.env.num_envs for config in arms] == pytest.approx([smallest] * 3)


@pytest.mark.parametrize("factor", [0, -1, 1.5])
def test_a_scale_outside_is_refused(factor):
    with pytest.raises(UserError, match="at most 1"):
        Scale(factor)


def test_one_arm_and_one_seed(tmp_path):
    found = planned_runs(EXPERIMENTS["figure3"](), Scale(), tmp_path, only=["episodic-0.99"], seed=4)
    assert [(run.group, run.config.seed) for run in found] == [("episodic-0.99", 4)]
    several = planned_runs(EXPERIMENTS["figure3"](), Scale(), tmp_path, only=["episodic-0.99", "nonepisodic-0.99"])
    assert {run.group for run in several} == {"episodic-0.99", "nonepisodic-0.99"} and len(several) == 10
    with pytest.raises(UserError, match=r"nonepisodic-0\.99"):
        planned_runs(EXPERIMENTS["figure3"](), Scale(), tmp_path, only=["nonepisodic"])
    with pytest.raises(UserError, match=r"figure1 has only seed 1, not 2"):
        planned_runs(EXPERIMENTS["figure1"](), Scale(), tmp_path, seed=2)
    with pytest.raises(UserError, match=r"seeds 1 to 2 at this scale, not 3"):
        planned_runs(EXPERIMENTS["figure3"](), Scale(5e-7), tmp_path, seed=3)


def store(planned, name):
    """Copy a stored run into the folder of a planned run, with the planned config."""
    shutil.copytree(STORED / name, planned.path)
    config = replace(planned.config, frames=12 * planned.config.frames_per_rollout)
    (planned.path / "config.json").write_text(json.dumps(config.to_dict()))


def test_states_and_a_half_done_image(tmp_path):
    experiment, scale = EXPERIMENTS["figure3"](), Scale(1e-5)
    found = planned_runs(experiment, scale, tmp_path)
    assert {run.state() for run in found} == {State.MISSING}
    store(found[0], "rnd-s1")
    store(found[1], "rnd-s3")
    assert [run.state() for run in found[:3]] == [State.FINISHED, State.PARTIAL, State.MISSING]
    paths = draw_experiment(experiment, found, scale, tmp_path, iqm=False)
    assert paths[0].name == "figure3-scale-1e-05.png"
    with paths[2].open() as file:
        rows = list(csv.DictReader(file))
    assert {row["line"] for row in rows} == {"non-episodic, γ_I = 0.999", "non-episodic, γ_I = 0.99, unfinished"}
    assert {row["measure"] for row in rows} == {"return_mean", "return_best", "rooms"}


def test_the_papers_best_return_is_in_the_panel_of_best_returns(tmp_path):
    panels = plot_of(EXPERIMENTS["figure3"](), [], Scale()).panels
    assert {panel.measure: [line.value for line in panel.references] for panel in panels} == {
        "return_mean": [],
        "return_best": [6_700],
        "rooms": [21],
    }


def test_table1_compares_with_the_paper(tmp_path):
    experiment = EXPERIMENTS["table1"]()
    found = planned_runs(experiment, Scale(), tmp_path)
    rnd = [run for run in found if run.group == "montezuma-rnd"]
    for run, name in zip(rnd, ("rnd-s1", "rnd-s2"), strict=False):
        store(run, name)
    paths = draw_experiment(experiment, found, Scale(), tmp_path, iqm=False)
    with paths[2].open() as file:
        row = next(r for r in csv.DictReader(file) if (r["game"], r["method"]) == ("Montezuma's Revenge", "RND"))
    last = []
    for name in ("rnd-s1", "rnd-s2"):
        with (STORED / name / "metrics.csv").open() as file:
            last.append(float(list(csv.DictReader(file))[-1]["return_mean"]))
    assert float(row["mean"]) == pytest.approx(sum(last) / 2)
    assert float(row["standard_error"]) == pytest.approx(abs(last[0] - last[1]) / 2)
    assert (row["runs"], row["paper"]) == ("2", "8152")


def test_table1_shows_what_is_finished_and_states_what_is_missing(tmp_path, monkeypatch, capsys):
    """One finished, one running (or failed) and one missing seed; the command itself trains nothing here."""
    found = planned_runs(EXPERIMENTS["table1"](), Scale(), tmp_path)
    stored = {"venture-none": ("rnd-s1", "rnd-s3"), "pitfall-rnd": ("rnd-s3", "rnd-s3", "rnd-s3")}
    stored["montezuma-rnd"] = ("rnd-s1", "rnd-s2", "ppo-s1")
    for arm, names in stored.items():
        for run, name in zip((run for run in found if run.group == arm), names, strict=False):
            store(run, name)
    monkeypatch.setattr("rnd.commands.paper._run", lambda todo, *_: len(todo))
    assert command("table1", "--out", str(tmp_path)) == 1
    assert "50 of 50 runs did not finish" in capsys.readouterr().err
    with (tmp_path / "table1.csv").open() as file:
        rows = {(row["game"], row["method"]): row for row in csv.DictReader(file)}
    with (STORED / "rnd-s1" / "metrics.csv").open() as file:
        last = float(list(csv.DictReader(file))[-1]["return_mean"])
    assert (float(rows["Venture", "PPO"]["mean"]), rows["Venture", "PPO"]["runs"]) == (pytest.approx(last), "1")
    assert rows["Pitfall!", "RND"]["runs"] == "0" and rows["Pitfall!", "RND"]["mean"] in ("", "nan")
    text = " ".join((tmp_path / "table1.svg").read_text().split())  # every text is a comment beside its shapes
    for missing in ("Venture, PPO: 1 of 3", "Pitfall!, RND: 0 of 3", "Montezuma's Revenge, PPO: 0 of 3"):
        assert f"{missing} seeds finished" in text
    assert "Montezuma's Revenge, RND:" not in text and "seeds end" not in text


def test_figure1_of_an_unfinished_run_is_marked(tmp_path, monkeypatch):
    (planned,) = planned_runs(EXPERIMENTS["figure1"](), Scale(), tmp_path)
    store(planned, "rnd-s3")
    notes = []
    monkeypatch.setattr("rnd.commands.paper._run", lambda todo, *_: len(todo))
    monkeypatch.setattr("rnd.report.watch.watch", lambda path, options, console, note: notes.append(note) or [])
    assert command("figure1", "--out", str(tmp_path)) == 1
    assert notes == ["the best of 10 episodes; RND: 0 of 1 seeds finished"]


def command(*words):
    with pytest.raises(SystemExit) as stop:
        cli.main(["paper", *words])
    return stop.value.code


def test_a_dry_run_prints_every_run_and_writes_nothing(tmp_path, capsys):
    assert command("figure3", "--scale", "1e-5", "--dry-run", "--out", str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert out.count("to run     ") == 6 and "scaled:" in out
    assert list(tmp_path.iterdir()) == []


def test_the_names_of_arms_are_whole_in_a_narrow_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert command("efficiency", "--list", "--scale", "1e-5", "--out", str(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [arm.name for arm in EXPERIMENTS["efficiency"]().arms]
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in names)


def test_the_list_of_all_experiments(capsys):
    assert command("--list") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in EXPERIMENTS) and "181.86 G frames" in out


def test_experiments_without_arms_parse_their_own_flags(tmp_path, capsys):
    assert command("prediction-errors", "--seeds", "1", "--steps", "1", "--out", str(tmp_path)) == 0
    assert (tmp_path / "prediction-errors.csv").exists()
    assert command("figure2", "--classes", "1", "2", "--seeds", "0") == 2  # a flag with two values
    assert "--seeds must be greater than 0" in capsys.readouterr().err


def test_flags_with_several_values_follow_the_name(monkeypatch, capsys):
    given = []
    monkeypatch.setattr("rnd.paper.figure2.run", lambda options, _: given.append(options))
    assert command("figure2", "--examples", "1", "1024", "--classes", "1", "2", "--seeds", "3") == 0
    assert (given[0].examples, given[0].classes, given[0].seeds) == ((1, 1024), (1, 2), 3)
    assert command("--seeds", "3", "figure2") == 0 and given[1].seeds == 3
    assert command("--examples", "1", "1024", "figure2") == 2
    error = "rnd: one name is wanted, not 2: 1024 figure2; write it before the flags\n"
    assert capsys.readouterr().err == error and len(given) == 2


@pytest.mark.parametrize(
    "words", [["figure33"], ["figure3", "--only", "x"], ["figure3", "--scale", "2"], ["figure3", "--jobs", "0"], []]
)
def test_wrong_arguments_give_one_line(words, capsys):
    assert command(*words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def tiny() -> Experiment:
    """A grid instead of Montezuma's Revenge."""
    config = small("MiniGrid-Empty-5x5-v0", "choices")
    options = BonusOptions(features=8, hidden=8, random_steps=16)
    config = replace(config, env=replace(config.env, num_envs=4), bonus_options=options, frames=512, device="cpu")
    return Experiment("figure1", "Figure 1", (Arm("rnd", "RND", config),), seeds=1)


@pytest.mark.long
def test_figure1_trains_an_agent_and_plays_it(tmp_path, monkeypatch, capsys):
    """The whole command."""
    monkeypatch.setitem(EXPERIMENTS, "figure1", tiny)
    assert command("figure1", "--episodes", "2", "--out", str(tmp_path)) == 0, capsys.readouterr().out
    assert all((tmp_path / f"figure1{ending}").stat().st_size for ending in (".mp4", ".png", ".svg", ".csv"))


def test_the_speed_is_measured_once(tmp_path):
    experiment = tiny()
    speed = frames_per_second(planned_runs(experiment, Scale(), tmp_path), tmp_path)
    assert speed["mlp"][0] > 0 and speed["mlp"][1] == "a short trial"
    assert frames_per_second(planned_runs(experiment, Scale(), tmp_path), tmp_path) == speed


def test_the_list_needs_speeds_of_chosen_runs_alone(tmp_path, monkeypatch, capsys):
    """Figure 4 has recurrent arms too, which `--only` leaves out."""
    monkeypatch.setattr("rnd.paper.speed.probe", lambda config: 1000.0)
    arm = EXPERIMENTS["figure4"]().arms[0]
    assert command("figure4", "--list", "--only", arm.name, "--out", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert {arm.config.policy} == {word for word in ("cnn", "gru") if f"({word} 1,000 frames/s" in shown}
