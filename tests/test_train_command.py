"""rnd train: configs as files, and several seeds."""

import json
from dataclasses import replace

import pytest

from rnd import cli
from rnd.commands.train import seeds_of
from rnd.config import Config
from rnd.config.presets import small
from rnd.foundation.errors import UserError

SMALL = [
    "--frames",
    "512",
    "--env.num-envs",
    "4",
    "--bonus-options.random-steps",
    "16",
    "--bonus-options.features",
    "8",
]


@pytest.fixture
def started(monkeypatch) -> list[Config]:
    """The configs of the runs that would have been started."""
    found: list[Config] = []
    monkeypatch.setattr("rnd.run.start", lambda config, console: found.append(config))
    return found


def test_a_config_file_is_the_start_and_flags_replace_its_values(started, tmp_path):
    cli.dispatch(["train", "CartPole-v1", "--bonus", "count", "--lr", "0.01", "--name", "first", *SMALL])
    (tmp_path / "config.json").write_text(json.dumps(started[0].to_dict()))
    cli.dispatch(["train", "--config", str(tmp_path / "config.json"), "--seed", "2"])
    assert started[1] == replace(started[0], seed=2, name=None)
    with pytest.raises(UserError, match=r"names its environment, CartPole-v1; leave out MountainCar-v0"):
        cli.dispatch(["train", "MountainCar-v0", "--config", str(tmp_path / "config.json")])
    with pytest.raises(UserError, match=r"missing\.json cannot be read"):
        cli.dispatch(["train", "--config", str(tmp_path / "missing.json")])


def test_a_config_file_of_a_stranger_runs_no_code(started, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = small("strangers_env:make")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    command = ["train", "--config", str(tmp_path / "config.json")]
    with pytest.raises(UserError, match=r"code that you have not trained with: strangers_env:make;.* add --trust"):
        cli.dispatch(command)
    assert not started
    cli.dispatch([*command, "--trust"])
    assert [run.env.id for run in started] == ["strangers_env:make"]


def test_lists_of_seeds():
    assert seeds_of("1-3") == [1, 2, 3]
    assert seeds_of("7, 2,4-5") == [7, 2, 4, 5]
    for wrong in ("", "a", "3-1", "1,1", "1-", "-1", "1-100000", "9" * 30):
        with pytest.raises(UserError, match="--seeds"):
            seeds_of(wrong)
    with pytest.raises(UserError, match="add --seeds"):
        cli.dispatch(["train", "CartPole-v1", "--jobs", "2"])


def test_several_seeds_are_trained_and_continued(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["train", "CartPole-v1", "--seeds", "1,3", "--jobs", "2", "--threads", "1", *SMALL]
    cli.dispatch(command)
    paths = [tmp_path / "runs" / f"cartpole-v1-rnd-mlp-s{seed}" for seed in (1, 3)]
    seeds = [json.loads((path / "config.json").read_text())["seed"] for path in paths]
    assert seeds == [1, 3]
    rows = [(path / "metrics.csv").read_bytes() for path in paths]
    assert rows[0] != rows[1]
    assert "rnd report runs/cartpole-v1-rnd-mlp-s1 runs/cartpole-v1-rnd-mlp-s3" in capsys.readouterr().out
    cli.dispatch(command)
    assert [(path / "metrics.csv").read_bytes() for path in paths] == rows
    assert "finished" not in capsys.readouterr().out
