"""rnd evaluate: the same episodes as rnd watch, however many are played at once."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from rnd import cli, run
from rnd.checkpoint.export import load_agent
from rnd.config import BonusOptions
from rnd.config.components import resolve
from rnd.config.presets import preset, small
from rnd.foundation.errors import UserError
from rnd.foundation.statistics import bootstrap_interval, difference_interval, interquartile_mean, mean_interval
from rnd.foundation.text import significant
from rnd.models.policy.mlp import WidthOptions
from rnd.report.play import episode
from rnd.training import evaluation
from rnd.training.evaluation import Evaluation, evaluate


def trained(folder, env_id="CartPole-v1", policy="mlp", **changes):
    config = small(env_id)
    config = replace(
        config,
        env=replace(config.env, num_envs=8),
        bonus_options=BonusOptions(features=16, hidden=16, keep=0.5, random_steps=32),
        policy=policy,
        policy_options=WidthOptions(16),
        rollout_steps=32,
        frames=8 * 32 * 2,
        out=str(folder),
        name="run",
        **changes,
    )
    return run.start(config, Console(quiet=True)).path


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("cartpole"))


@pytest.mark.parametrize("at_once", [128, 2])
def test_the_episodes_are_those_of_watch_however_many_are_played_at_once(cartpole, at_once, monkeypatch):
    monkeypatch.setattr(evaluation, "AT_ONCE", at_once)
    agent = load_agent(cartpole)
    found = evaluate(agent, 5, seed=3)
    watched = [episode(agent, 3, number) for number in range(5)]
    assert found.returns == [one.score for one in watched]
    assert found.lengths == [len(one.steps) for one in watched]
    assert len(set(found.lengths)) > 1


FACTORY = """
import gymnasium

def make():
    return gymnasium.make("CartPole-v1")

def vector(num_envs):
    return gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="sync")
"""


@pytest.mark.parametrize("name", ["make", "vector"])
def test_episodes_of_ones_own_environment_are_those_of_watch(name, tmp_path, monkeypatch):
    (tmp_path / "own_cartpole.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    agent = load_agent(trained(tmp_path, f"own_cartpole:{name}"))
    found = evaluate(agent, 5, seed=3)
    assert found.lengths == [len(episode(agent, 3, number).steps) for number in range(5)]
    assert len(set(found.lengths)) > 1
    greedy = evaluate(agent, 5, seed=3, greedy=True)
    assert greedy.lengths == [len(episode(agent, 3, number, greedy=True).steps) for number in range(5)]
    assert greedy.lengths != found.lengths


def test_rooms_of_later_levels_are_the_same_rooms():
    """As in the metrics of training."""
    actions = np.zeros(1, np.uint8)
    found = Evaluation("ALE/MontezumaRevenge-v5", 1, 1, False, [0.0, 0.0], [1, 1], [[1, 2, 257], [1, 258]], actions)
    assert found.summary()["rooms"] == 2 and found.summary()["rooms_per_episode"] == 2
    cells = replace(found, rooms=[[1, 257]] * 2, has_cells=True)
    assert cells.summary()["cells_per_episode"] == 2


def test_success_is_reported_where_the_environment_has_a_goal(tmp_path, cartpole):
    found = evaluate(load_agent(trained(tmp_path, "rnd/DeepSea-4")), 20)
    assert found.summary()["success"] == np.mean([one > 0.5 for one in found.returns])
    assert "success" not in evaluate(load_agent(cartpole), 2).summary()


def test_continuous_actions_and_greedy_play(tmp_path):
    agent = load_agent(trained(tmp_path, "Pendulum-v1"))
    found = evaluate(agent, 2, seed=1)
    assert found.returns == pytest.approx([episode(agent, 1, number).score for number in range(2)], abs=1e-3)
    assert evaluate(agent, 2, seed=1, greedy=True).returns != found.returns


@pytest.mark.parametrize("policy", ["cnn", "gru"])
def test_frame_stacks_and_hidden_states_are_those_of_training(tmp_path, policy):
    """On the native core, where there is one; rnd watch plays on ale-py."""
    config = preset("freeway")
    env = replace(config.env, num_envs=4, workers=0, max_episode_frames=240)
    bonus = BonusOptions(features=16, hidden=16, random_steps=16)
    config = resolve(replace(config, env=env, bonus_options=bonus, policy=policy, rollout_steps=4, frames=64))
    path = run.start(replace(config, device="cpu", out=str(tmp_path), name="run"), Console(quiet=True)).path
    agent = load_agent(path)
    found = evaluate(agent, 3, seed=5)
    watched = [episode(agent, 5, number) for number in range(3)]
    assert found.returns == [one.score for one in watched]
    assert found.lengths == [len(one.steps) for one in watched] == [60, 60, 60]


def test_an_endless_episode_is_cut(cartpole, monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_STEPS", 4)
    found = evaluate(load_agent(cartpole), 3, seed=3)
    assert found.lengths == [4, 4, 4]
    assert found.returns == [4, 4, 4]


def test_intervals_against_closed_forms():
    scores = np.random.default_rng(0).normal(10, 2, 400)
    low, high = mean_interval(scores)
    error = 1.96 * scores.std() / 20
    assert (low, high) == pytest.approx((scores.mean() - error, scores.mean() + error), abs=0.03)
    low, high = difference_interval(scores, scores[:100])
    error = 1.96 * np.hypot(scores.std() / 20, scores[:100].std() / 10)
    middle = scores.mean() - scores[:100].mean()
    assert (low, high) == pytest.approx((middle - error, middle + error), abs=0.04)
    assert interquartile_mean(np.array([0.0, 1, 2, 100])) == 1.5
    assert bootstrap_interval([np.ones(3)]) == (1, 1)


def rnd(*arguments, cwd):
    done = subprocess.run([sys.executable, "-m", "rnd", *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_command_scores_compares_and_writes(cartpole, tmp_path):
    code, text = rnd("evaluate", cartpole, "--episodes", 6, "--against", cartpole, "--device", "cpu", cwd=tmp_path)
    assert code == 0, text
    data = json.loads((cartpole / "evaluation.json").read_text())
    assert data["episodes"] == len(data["returns"]) == 6
    low, high = data["mean_return_interval_95"]
    assert low < data["mean_return"] == np.mean(data["returns"]) < high
    assert data["against"]["mean_difference"] == 0
    assert data["against"]["probability_of_improvement"] == 0.5
    assert f"mean return {significant(data['mean_return'])}" in text
    assert re.search(r"difference 0\b(?!\.)", text) and "warning" not in text


def test_scores_of_two_tasks_are_said_to_be_so(cartpole, tmp_path, capsys):
    other = trained(tmp_path, "Acrobot-v1")
    cli.dispatch(["evaluate", str(cartpole), "--episodes", "1", "--against", str(other), "--out", f"{tmp_path}/new/x"])
    assert f"warning: {other} plays Acrobot-v1, not CartPole-v1: the scores are those of two" in capsys.readouterr().out


def test_a_result_that_cannot_be_written_costs_no_episodes(cartpole, tmp_path, monkeypatch):
    monkeypatch.setattr("rnd.commands.evaluate.play", lambda *_: pytest.fail("played"))
    with pytest.raises(OSError, match="it is a folder and is not replaced"):
        cli.dispatch(["evaluate", str(cartpole), "--out", str(tmp_path)])
    monkeypatch.setattr(os, "access", lambda *_: False)  # a read-only folder, also where the tests run as root
    with pytest.raises(UserError, match=r"evaluation\.json cannot be written: its folder is read-only; --out takes"):
        cli.dispatch(["evaluate", str(cartpole)])
    with pytest.raises(UserError, match=r"episode\.mp4 cannot be written"):
        cli.dispatch(["watch", str(cartpole)])
    with pytest.raises(UserError, match=r"--out .* is read-only; name another folder"):
        cli.dispatch(["train", "CartPole-v1", "--out", str(tmp_path)])
