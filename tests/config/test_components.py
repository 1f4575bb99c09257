"""Bonuses, policies and writers by name or `module:Class`, each with options of its own."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from rnd import run
from rnd.bonus.base import BonusModule
from rnd.config import BonusOptions, Config, PolicyOptions, WriterOptions
from rnd.config.components import BONUSES, POLICIES, WRITERS, Registry, resolve, writer_names
from rnd.config.presets import changes, preset, small
from rnd.foundation.errors import UserError
from rnd.metrics.metrics import RunInfo
from rnd.models.policy.mlp import MLP

PLUGIN = """
from dataclasses import dataclass
import torch
from rnd.bonus.base import BonusModule
from rnd.config import BonusOptions, PolicyOptions, WriterOptions
from rnd.models.policy.base import ActorCritic, vector_torso

class Constant(BonusModule):
    @dataclass(frozen=True)
    class Options(BonusOptions):
        loud: bool = False
        \"\"\"A switch: no value follows it.\"\"\"
        value: float = 1.0
        \"\"\"The bonus of every transition.\"\"\"
    random_start = False
    def __init__(self, observation, action, options):
        super().__init__()
        self.value = options.value
    def score(self, transitions):
        return torch.full(transitions.actions.shape[:2], self.value)
    def loss(self, transitions, targets, keep_TN, share):
        return torch.zeros(())

class Tiny(ActorCritic):
    @dataclass(frozen=True)
    class Options(PolicyOptions):
        units: int = 4
        \"\"\"Width.\"\"\"
    reads = ("vector",)
    def __init__(self, observation, action, options):
        super().__init__(vector_torso(observation.shape[0], options.units), options.units, action, image=False)

class Lines:
    @dataclass(frozen=True)
    class Options(WriterOptions):
        name: str = "lines.txt"
        \"\"\"File in the run folder.\"\"\"
    def __init__(self, run, options):
        self.file = (run.folder / options.name).open("a")
    def write(self, row, timing):
        self.file.write(f"{row['frames']} {row['bonus_raw']}\\n")
    def flush(self):
        self.file.flush()
    def close(self):
        self.file.close()
"""


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "plugin_of_a_user.py").write_text(PLUGIN)
    return tmp_path


def rnd(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rnd", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


SMALL = ["--env.num-envs", "4", "--rollout-steps", "8", "--frames", "64", "--device", "cpu", "--name", "run"]


def test_a_users_bonus_policy_and_writer_on_the_command_line(plugin):
    """With their own flags, in config.json, and again after a resume."""
    components = ["--bonus", "plugin_of_a_user:Constant", "--policy", "plugin_of_a_user:Tiny"]
    options = [
        "--bonus-options.value",
        "0.25",
        "--policy-options.units",
        "6",
        "--writer-options.lines.name",
        "mine.txt",
    ]
    # a switch of the user's own, right before the name of the game
    flags = ["--bonus-options.loud", "CartPole-v1", *SMALL, *components, "--writers", "plugin_of_a_user:Lines"]
    done = rnd(plugin, "train", *flags, *options)
    assert done.returncode == 0, done.stderr
    data = json.loads((plugin / "runs/run/config.json").read_text())
    assert (data["bonus_options"]["loud"], data["bonus_options"]["value"]) == (True, 0.25)
    assert data["policy_options"] == {"units": 6}
    assert data["writer_options"] == {"lines": {"name": "mine.txt"}}
    assert "tensorboard" not in done.stdout
    again = rnd(plugin, "resume", "runs/run", "--frames", "128")
    assert again.returncode == 0, again.stderr
    assert (plugin / "runs/run/mine.txt").read_text().split("\n") == [f"{32 * k} 0.25" for k in range(1, 5)] + [""]
    assert not (plugin / "runs/run/tensorboard").exists()
    wrong = rnd(plugin, "train", "CartPole-v1", *SMALL, *components, "--policy-options.width", "3")
    assert wrong.returncode == 2 and "--policy-options.units" in wrong.stderr and "Traceback" not in wrong.stderr


def test_reading_a_config_imports_nothing(plugin, monkeypatch):
    monkeypatch.chdir(plugin)
    stranger = Config.from_dict(
        {"bonus": "plugin_of_a_user:Constant", "bonus_options": {"value": 2.0}, "policy": "cnn", "writers": "a:B"}
    )
    assert resolve(stranger, import_all=False).bonus_options.value == 2.0
    assert changes(stranger, "experiment")["bonus_options.value"] == 2.0
    assert "plugin_of_a_user" not in sys.modules
    assert pickle.loads(pickle.dumps(stranger)) == stranger


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bonus", "dynamic"], "unknown bonus 'dynamic'; nearest: dynamics"),
        (["--policy", "gro"], "unknown policy 'gro'; nearest: gru"),
        (["--writers", "tensorbord"], "unknown writer 'tensorbord'; nearest: tensorboard"),
        (["--bonus", "nosuch_module:X"], "cannot load the bonus nosuch_module:X: No module named"),
        (["--bonus", "math:nosuch"], "cannot load the bonus math:nosuch"),
        (["--bonus", "math:pi"], "bonus math:pi is no class"),
        (["--policy-options.width", "0"], "--policy-options.width must be greater than 0"),
    ],
)
def test_what_is_no_component_is_refused_in_one_line(arguments, message, tmp_path):
    from rnd import cli

    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        cli.dispatch(["train", "CartPole-v1", "--out", str(tmp_path), *arguments])
    assert not list(tmp_path.iterdir())


def test_options_become_those_of_the_component_and_unknown_ones_are_refused():
    given = BonusOptions(features=7)
    count = BONUSES.options("count", given)
    assert type(count).__qualname__ == "Count.Options" and (count.features, count.power) == (7, "0.5")
    assert BONUSES.options("count", count) is count
    with pytest.raises(UserError, match="bonus rnd has no option power"):
        BONUSES.options("rnd", count)
    with pytest.raises(UserError, match="policy cnn has no option width; nearest: kernel"):
        resolve(replace(preset("montezuma"), policy_options=MLP.Options(3)))


class NotOptions:
    @dataclass(frozen=True)
    class Options:
        x: int = 1


def test_options_must_be_options():
    registry = Registry("bonus", BonusOptions, {})
    registry.register("bad", NotOptions)
    with pytest.raises(UserError, match=r"must be a subclass of rnd\.config\.BonusOptions"):
        registry.options("bad", BonusOptions())


def test_every_component_of_ours_can_be_loaded():
    for name in BONUSES:
        assert issubclass(BONUSES.load(name, BonusModule), BonusModule)
    for name in POLICIES:
        assert issubclass(POLICIES.load(name, torch.nn.Module).Options, PolicyOptions)
    for name in WRITERS:
        assert all(hasattr(WRITERS.load(name), method) for method in ("write", "flush", "close"))


def test_a_policy_that_cannot_read_the_observations_is_refused(tmp_path):
    for game, policy, near in (("CartPole-v1", "cnn", "mlp"), ("ALE/Freeway-v5", "mlp", "cnn")):
        config = replace(preset(game), policy=policy, device="cpu", out=str(tmp_path))
        config = replace(config, env=replace(config.env, num_envs=4, workers=0, backend="auto"), rollout_steps=4)
        with pytest.raises(UserError, match=f"--policy {policy} cannot read; nearest: --policy {near}"):
            run.start(config, None)


def test_writers_are_named_by_commas():
    config = small("CartPole-v1")
    assert writer_names(config) == ["tensorboard"]
    assert writer_names(replace(config, writers="none")) == []
    assert writer_names(replace(config, writers="tensorboard,wandb")) == ["tensorboard", "wandb"]
    resolved = resolve(replace(config, writers="tensorboard,wandb"))
    assert resolved.flat()["writer_options.wandb.project"] == "rnd"
    assert isinstance(resolved.writer_options, WriterOptions)
    assert RunInfo(Path("x"), resolved, 0).config is resolved
