"""Run folders in every state become data and warnings, never exceptions."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rnd.errors import UserError
from rnd.presets import preset
from rnd.report.runs import Run, digest, expand, grouped, read_run

STORED = Path(__file__).parent / "stored"


def test_a_finished_run():
    run = read_run(STORED / "rnd-s1")
    assert run.finished and not run.warnings
    assert run.iterations == 12 and run.last("iteration") == 12
    assert run.places[1] == (32768, run.places[1][1])


def test_an_unfinished_run_has_a_warning_with_its_rollout():
    run = read_run(STORED / "rnd-s3")
    assert not run.finished
    assert any("rollout 9 of 12" in text for text in run.warnings)


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
    assert isinstance(run.places, dict) and isinstance(run.about, dict)
    if name.endswith(".json") and not (name == "run.json" and content == '{"1": 5}'):
        assert any(name in text for text in run.warnings)
    if name == "metrics.csv":
        assert not run.finished and run.warnings


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
    found = [path.name for path in expand([STORED])]
    assert found == ["minigrid-s1", "pitfall-s1", "ppo-s1", "rnd-s1", "rnd-s2", "rnd-s3"]
    assert expand([STORED / "rnd-s1", STORED / "rnd-s1"]) == [STORED / "rnd-s1"]


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
    assert labels == ["Pitfall, cnn", "MiniGrid-MultiRoom-N4-S5, mlp"]
    alone = grouped([read_run(STORED / "rnd-s1")])
    assert alone[0].label == "MontezumaRevenge, rnd, cnn"
