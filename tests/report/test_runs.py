"""Run folders in every state become data and warnings, never exceptions."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rnd.config.presets import preset
from rnd.foundation.errors import UserError
from rnd.report.runs import Run, digest, expand, grouped, read_run

STORED = Path(__file__).parent / "stored"


def test_a_finished_run():
    run = read_run(STORED / "rnd-s1")
    assert run.finished and not run.warnings
    assert run.iterations == 12 and run.last("iteration") == 12
    assert run.places[1] == (32768, run.places[1][1])


def test_an_unfinished_run_says_how_far_it_came_and_is_no_warning():
    run = read_run(STORED / "rnd-s3")
    assert not run.finished and not run.warnings
    assert run.state == "unfinished: 589,824 of 786,432 frames"
    assert read_run(STORED / "rnd-s1").state == "finished"


def test_an_empty_folder(tmp_path):
    run = read_run(tmp_path)
    assert run.config is None and run.iterations == 0 and np.isnan(run.last("return_mean"))
    assert {"config.json is missing", "run.json is missing"} <= set(run.warnings)


@pytest.mark.parametrize("name", ["config.json", "run.json", "rooms.json", "metrics.csv", "timing.csv"])
@pytest.mark.parametrize(
    "content", ["", "{", "[1]", "a,b\n1,x\n", "null", '{"1": 5}', "iteration,frames\n1,2\n3", "\x00\xff"]
)
def test_a_broken_file_is_a_warning(tmp_path, name, content):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "run")
    (tmp_path / "run" / name).write_text(content, encoding="latin-1")
    run = read_run(tmp_path / "run")
    assert isinstance(run.places, dict) and isinstance(run.described, dict)
    if name.endswith(".json") and not (name == "run.json" and content == '{"1": 5}'):
        assert any(name in text for text in run.warnings)
    if name == "metrics.csv":
        assert not run.finished and (run.warnings or run.state.startswith("unfinished"))


def test_an_unknown_config_field_is_a_warning(tmp_path):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "run")
    data = json.loads((tmp_path / "run" / "config.json").read_text()) | {"newer": 1}
    (tmp_path / "run" / "config.json").write_text(json.dumps(data))
    assert any("newer" in text for text in read_run(tmp_path / "run").warnings)


def test_no_folder_is_an_error(tmp_path):
    for function in (read_run, lambda path: expand([path])):
        with pytest.raises(UserError, match="is not a folder"):
            function(tmp_path / "nothing")


def test_a_folder_of_runs_stands_for_them():
    found = [path.name for path in expand([STORED])[0]]
    assert found == ["minigrid-s1", "pitfall-s1", "ppo-s1", "rnd-s1", "rnd-s2", "rnd-s3"]
    assert expand([STORED / "rnd-s1", STORED / "rnd-s1"]) == ([STORED / "rnd-s1"], [])


def test_what_a_killed_import_leaves_is_no_run(tmp_path):
    for name in ("run", ".new-x1y2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    assert expand([tmp_path]) == ([tmp_path / "run"], [])


def test_the_digest_depends_on_the_experiment_alone():
    config = preset("montezuma")
    same = replace(config, seed=7, name="x", out="y", device="cpu", env=replace(config.env, workers=3, backend="ale"))
    assert digest(same) == digest(config)
    assert digest(replace(config, lr=2e-4)) != digest(config)
    assert digest(replace(config, overlap=True)) != digest(config)  # learns from older data
    assert digest(replace(config, env=replace(config.env, num_envs=64))) != digest(config)


def test_seeds_are_grouped_and_labelled_by_what_differs():
    names = ("rnd-s1", "ppo-s1", "rnd-s2", "rnd-s3")
    groups = grouped([read_run(STORED / name) for name in names])
    assert [(group.label, len(group.runs)) for group in groups] == [("rnd", 3), ("none", 1)]
    presets = [Run(Path(game), preset(game)) for game in ("pitfall", "MiniGrid-MultiRoom-N4-S5-v1")]
    labels = [group.label for group in grouped(presets)]  # they differ in much more, which nobody chose
    assert labels == ["rnd, cnn", "noveld, mlp"]


def runs_with(*changes, game="montezuma"):
    return [Run(Path(f"{game}-{i}"), replace(preset(game), **one)) for i, one in enumerate(changes)]


def test_labels_are_unique_however_many_fields_differ():
    """The first four fields that differ are equal in the last two runs."""
    far = {"policy": "gru", "lr": 2e-4, "gamma_ext": 0.9, "epochs": 2, "rollout_steps": 64, "minibatches": 2}
    runs = runs_with({}, far, far | {"entropy_coef": 0.1}, far | {"entropy_coef": 0.1, "gae_lambda": 0.9})
    labels = [group.label for group in grouped(runs)]
    assert len(set(labels)) == 4
    assert labels[3].endswith("gae_lambda 0.9, entropy_coef 0.1") or labels[3].endswith("gae_lambda 0.9")
    env = preset("montezuma").env
    ranks = runs_with({"env": replace(env, num_envs=64)}, {"env": replace(env, num_envs=64), "ranks": 4})
    assert [group.label for group in grouped(ranks)] == ["num_envs 64", "num_envs 256"]


def test_folders_of_one_name_without_a_config_have_different_labels(tmp_path):
    for parent in "ab":
        (tmp_path / parent / "run").mkdir(parents=True)
    groups = grouped([read_run(tmp_path / parent / "run") for parent in "ab"])
    assert len({group.label for group in groups}) == 2


def test_environments_stay_apart_and_one_label_has_one_colour():
    first = runs_with({"bonus": "none"}, {})
    second = runs_with({"bonus": "rnd"}, {"bonus": "none"}, {"bonus": "rnd", "seed": 2}, game="CartPole-v1")
    groups = grouped([first[0], second[0], first[1], *second[1:]])
    found = [(group.env_id, group.label, len(group.runs)) for group in groups]
    montezuma = "ALE/MontezumaRevenge-v5"
    assert found == [
        (montezuma, "none", 1),
        (montezuma, "rnd", 1),
        ("CartPole-v1", "rnd", 2),
        ("CartPole-v1", "none", 1),
    ]
    assert [group.colour for group in groups] == [0, 1, 1, 0]


def test_unfinished_runs_are_not_part_of_a_mean_with_finished_ones():
    group = grouped([read_run(STORED / f"rnd-s{seed}") for seed in (1, 2, 3)])[0]
    assert [run.name for run in group.averaged] == ["rnd-s1", "rnd-s2"] and not group.marked
    assert [run.name for run in group.left_out] == ["rnd-s3"]
    alone = grouped([read_run(STORED / "rnd-s3")])[0]
    assert [run.name for run in alone.averaged] == ["rnd-s3"] and not alone.left_out and not alone.marked
    both = grouped([read_run(STORED / "rnd-s3"), read_run(STORED / "ppo-s1")])
    assert [group.marked for group in both] == [True, False]


def test_options_that_a_bonus_does_not_have_are_a_warning(tmp_path):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "run")
    data = json.loads((tmp_path / "run" / "config.json").read_text())
    data["bonus_options"]["newer"] = 1
    (tmp_path / "run" / "config.json").write_text(json.dumps(data))
    assert any("newer" in text for text in read_run(tmp_path / "run").warnings)


def test_a_folder_without_a_run_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no run")
    with pytest.raises(UserError, match="holds no run"):
        expand([tmp_path])


def test_folders_beside_runs_that_hold_none_are_left_out(tmp_path):
    """`rnd report runs/*` also names the folders of logs, videos and scores that rnd itself makes there."""
    shutil.copytree(STORED / "rnd-s1", tmp_path / "run")
    (tmp_path / "jobs").mkdir()
    assert expand(sorted(tmp_path.iterdir())) == ([tmp_path / "run"], [tmp_path / "jobs"])


def test_the_runs_of_a_sweep_are_named(tmp_path):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "sweep" / "runs" / "trial-000-s1")
    with pytest.raises(UserError, match=f"{tmp_path}/sweep holds no run; nearest: {tmp_path}/sweep/runs$"):
        expand([tmp_path / "sweep"])


def test_the_name_of_a_run_without_its_folder_leads_to_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(STORED / "rnd-s1", tmp_path / "runs" / "mine")
    with pytest.raises(UserError, match=r"mine is not a folder; nearest: runs/mine$"):
        expand([Path("mine")])


def test_a_run_that_lacks_its_config_has_data(tmp_path):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    assert expand([tmp_path]) == ([tmp_path / "run"], [])
    run = read_run(tmp_path / "run")
    assert run.iterations and run.state == "786,432 frames; without config.json nobody knows of how many"
