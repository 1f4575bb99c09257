"""rnd train: configs as files, and several seeds."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rnd import cli
from rnd.commands.train import seeds_of
from rnd.config import Config
from rnd.config.presets import small
from rnd.foundation.errors import UserError
from rnd.jobs.planned import PlannedRun
from rnd.jobs.seeds import table

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


def test_a_config_file_is_the_start_and_flags_replace_its_values(started, tmp_path, monkeypatch):
    cli.dispatch(["train", "CartPole-v1", "--bonus", "count", "--lr", "0.01", "--name", "first", *SMALL])
    (tmp_path / "config.json").write_text(json.dumps(started[0].to_dict()))
    cli.dispatch(["train", "--config", str(tmp_path / "config.json"), "--seed", "2"])
    cli.dispatch(["train", "--config", str(tmp_path), "--seed", "2"])  # the folder of the run
    assert started[1] == started[2] == replace(started[0], seed=2, name=None)
    with pytest.raises(UserError, match=r"names its environment, CartPole-v1; leave out MountainCar-v0"):
        cli.dispatch(["train", "MountainCar-v0", "--config", str(tmp_path / "config.json")])
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "config.json").rename(tmp_path / "runs" / "first" / "config.json")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"--config first does not exist; nearest: runs/first$"):
        cli.dispatch(["train", "--config", "first"])
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder in which two seeds of a run, whose name has a dot, have been trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("seeds"))
        cli.dispatch(SEEDS)
        return Path.cwd()


@pytest.fixture
def two_seeds(trained, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


SEEDS = ["train", "CartPole-v1", "--seeds", "1,3", "--jobs", "2", "--threads", "1", "--name", "v0.1", *SMALL]


def run_rows(folder: Path, seed: int) -> list[str]:
    return (folder / "runs" / f"v0.1-s{seed}" / "metrics.csv").read_text().splitlines()[1:]


def test_several_seeds_are_trained_compared_and_continued(two_seeds, capsys, monkeypatch):
    monkeypatch.chdir(two_seeds)
    configs = [json.loads(Path(f"runs/v0.1-s{seed}/config.json").read_text()) for seed in (1, 3)]
    assert [config["seed"] for config in configs] == [1, 3]
    rows = [run_rows(two_seeds, seed) for seed in (1, 3)]
    assert rows[0] != rows[1] and len(rows[0]) == len(rows[1]) == 2
    capsys.readouterr()
    cli.dispatch(SEEDS)
    assert [run_rows(two_seeds, seed) for seed in (1, 3)] == rows
    said = capsys.readouterr().out
    assert "rnd report runs/v0.1-s1 runs/v0.1-s3" in said and "finished" not in said
    lines = [line.split() for line in said.splitlines()]
    assert lines[0] == ["seed", "frames", "return", "(last", "100)"]
    assert [line[:2] for line in lines[1:3]] == [["1", "512"], ["3", "512"]]
    assert lines[3][0] == "mean" and "(95%:" in lines[3]

    cli.dispatch([*SEEDS, "--frames", "1024", "--checkpoint.keep-last", "3"])  # finished ones get longer
    assert [run_rows(two_seeds, seed)[:2] for seed in (1, 3)] == rows
    assert [len(run_rows(two_seeds, seed)) for seed in (1, 3)] == [4, 4]
    config = json.loads(Path("runs/v0.1-s1/config.json").read_text())
    assert config["frames"] == 1024 and config["checkpoint"]["keep_last"] == 3
    with pytest.raises(UserError, match=r"1,024 frames done instead of 512; choose another --name"):
        cli.dispatch(SEEDS)


def test_several_seeds_with_other_flags_are_refused(two_seeds, monkeypatch):
    monkeypatch.chdir(two_seeds)
    other = ["train", "Acrobot-v1", *SEEDS[2:], "--lr", "0.05", "--bonus", "count"]
    with pytest.raises(UserError) as refused:
        cli.dispatch(other)
    said = str(refused.value)
    differs = "env.id CartPole-v1 instead of Acrobot-v1", "bonus noveld instead of count", "and 2 more"
    for text in ("runs/v0.1-s1", *differs):
        assert text in said, said
    with pytest.raises(UserError, match=r"--seeds 1,3 names all seeds; leave out --seed 4"):
        cli.dispatch([*SEEDS, "--seed", "4"])
    with pytest.raises(UserError, match="no run name"):
        cli.dispatch(["train", "CartPole-v1", "--seeds", "1", "--name", "../x", *SMALL])
    assert [len(run_rows(two_seeds, seed)) for seed in (1, 3)] == [2, 2]


def test_a_folder_of_another_seed_is_refused(tmp_path):
    planned = PlannedRun("x", replace(small("CartPole-v1"), seed=2, out=str(tmp_path), name="x"))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "config.json").write_text(json.dumps(replace(planned.config, seed=1).to_dict()))
    with pytest.raises(UserError, match="seed 1 instead of 2"):
        planned.check_folder()


def test_the_table_of_seeds(tmp_path):
    config = replace(small("MiniGrid-Empty-5x5-v0", "choices"), out=str(tmp_path), frames=2048, name="x")
    runs = [PlannedRun("x", replace(config, seed=seed, name=f"x-s{seed}")) for seed in (1, 2, 3)]
    for planned, end in zip(runs, ("1,2048,0.5,0.25", "1,2048,0.75,0.75", ""), strict=True):
        planned.path.mkdir()
        (planned.path / "config.json").write_text(json.dumps(planned.config.to_dict()))
        (planned.path / "metrics.csv").write_text(f"iteration,frames,return_mean,success\n{end}\n")
    console = Console(file=io.StringIO(), width=120)
    console.print(table([(planned, planned.read()) for planned in runs]))
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert lines[0] == "seed frames return (last 100) success (last 100)"
    assert lines[1:3] == ["1 2,048 0.500 25%", "2 2,048 0.750 75%"]
    assert lines[3] == "3 0 of 2,048"
    for planned in runs:
        (planned.path / "metrics.csv").write_text("iteration,frames,return_mean\n1,2048,\n")
    console.print(table([(planned, planned.read()) for planned in runs]))
    assert "mean" not in console.file.getvalue().splitlines()[-1]  # of nothing
    assert lines[4] == "mean 0.625 (95%: 0.500 to 0.750) 50% (95%: 25% to 75%)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPole-v1", "--env.sticky", "0.5"], "--env.sticky would change nothing: CartPole-v1 is no Atari game"),
        (["rnd/DeepSea-4", "--env.max_episode_frames=5"], "--env.max-episode-frames would change nothing"),
        (["rnd/DeepSea-4", "--env.workers", "2"], "rnd/DeepSea-4 has no worker processes; leave it out"),
    ],
)
def test_flags_that_would_change_nothing_are_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        cli.dispatch(["train", *arguments])


def test_an_environment_that_a_flag_names_starts_from_its_own_settings(started):
    for game in ("CartPole-v1", "montezuma"):
        cli.dispatch(["train", game, "--seed", "2"])
        cli.dispatch(["train", "--env.id", game, "--seed", "2"])
        assert started[-1] == started[-2]
    with pytest.raises(UserError, match=r"CartPole-v1 is the environment already; leave out --env.id Acrobot-v1"):
        cli.dispatch(["train", "CartPole-v1", "--env.id", "Acrobot-v1"])


def test_a_recipe_changes_the_games_settings_and_flags_replace_those(started, tmp_path):
    game = ["train", "montezuma", "--recipe", "efficient"]
    cli.dispatch(game)
    cli.dispatch([*game, "--minibatches", "32", "--seed", "3"])
    assert [config.minibatches for config in started] == [16, 32]
    cli.dispatch(["train", "montezuma", "--recipe", "snd", "--bonus-options.noise", "0.1"])
    cli.dispatch(["train", "montezuma", "--recipe", "snd", "--bonus", "rnd"])
    assert [(config.bonus, config.bonus_scale, config.shuffle) for config in started[2:]] == [
        ("snd-v", 4.0, True),
        ("rnd", 4.0, True),
    ]
    assert started[2].bonus_options.noise == 0.1
    (tmp_path / "config.json").write_text(json.dumps(started[0].to_dict()))
    with pytest.raises(UserError, match="has its settings already; leave out --recipe efficient"):
        cli.dispatch(["train", "--config", str(tmp_path / "config.json"), "--recipe", "efficient"])
