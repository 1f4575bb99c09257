"""rnd.train and rnd.load: the paper's agent from Python."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import rnd
from rnd.checkpoint.export import export_agent
from rnd.foundation.errors import UserError

TINY = {"env": {"num_envs": 4}, "rollout_steps": 16, "writers": "none", "quiet": True, "device": "cpu"}


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("runs"))
    return rnd.train("CartPole-v1", frames=256, out=out, bonus="rnd", bonus_options={"features": 16}, **TINY)


def test_train_is_the_command(agent):
    assert agent.config.frames == 256
    assert agent.config.bonus_options.features == 16
    assert agent.config.bonus_options.hidden == 128  # of the preset
    assert (agent.path / "metrics.csv").exists()
    assert agent.card["frames"] == 256


def test_a_config_can_be_trained(tmp_path):
    config = rnd.Config(env=rnd.config.EnvConfig(id="rnd/DeepSea-4", num_envs=4, frame_skip=1), policy="mlp")
    trained = rnd.train(config, frames=128, out=str(tmp_path), **TINY | {"env": {"num_envs": 2}, "minibatches": 2})
    assert trained.config.env.num_envs == 2
    assert trained.act(np.eye(16, dtype=np.float32)[0]) in (0, 1)


def test_act_takes_one_observation_or_a_batch(agent):
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    agent.reset()
    for _ in range(5):
        obs, *_ = env.step(agent.act(obs))
    batch = np.stack([obs, -obs, obs])
    actions = agent.act(batch, first=np.array([True, False, True]), deterministic=True)
    assert actions.shape == (3,)
    assert actions[0] == actions[2] == agent.act(obs, first=True, deterministic=True)


def test_recurrent_policies_and_pictures_remember_the_episode(tmp_path):
    trained = rnd.train("CartPole-v1", frames=128, out=str(tmp_path), policy="gru", **TINY)
    obs = np.ones(4, np.float32)
    trained.act(obs)
    first = trained._actor.hidden.clone()
    trained.act(obs)
    assert not first.equal(trained._actor.hidden)
    trained.act(obs, first=True)
    assert first.equal(trained._actor.hidden)


def test_the_bonus_of_observations_is_that_of_the_run(agent):
    obs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    scores = agent.bonus(obs)
    assert scores.shape == (3,)
    assert agent.bonus(obs[1]) == pytest.approx(scores[1], rel=1e-5)


def test_evaluate_plays_the_same_episodes_for_a_seed(agent):
    result = agent.evaluate(episodes=3, seed=5)
    assert result.returns == agent.evaluate(episodes=3, seed=5).returns
    assert len(result.returns) == len(result.lengths) == 3
    assert result.mean_return == pytest.approx(np.mean(result.returns))
    assert result.returns == result.lengths  # CartPole gives 1 per step


def test_an_exported_file_is_the_same_agent(agent, tmp_path):
    path = export_agent(agent.path, tmp_path / "agent.safetensors")
    assert rnd.load(path).evaluate(2).returns == rnd.load(agent.path).evaluate(2).returns


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"frams": 3}, "unknown config field frams; nearest: frames"),
        ({"frames": "many"}, "frames is 'many'"),
        ({"num_envs": 5}, "unknown config field num_envs; nearest: env={'num_envs': 5}"),
        ({"keep_last": 1}, "nearest: checkpoint={'keep_last': 1}"),
        ({"env": {"num_envs": 5}}, "5 environments do not divide into 4 minibatches"),
        ({"bonus": "rmd"}, "unknown bonus 'rmd'"),
        ({"env": None}, "env is a group of fields"),
        ({"env": "CartPole-v1"}, "env is a group of fields"),
        ({"bonus_options": 64}, "bonus_options is a group of fields"),
    ],
)
def test_mistakes_in_overrides_are_one_line(overrides, message, tmp_path):
    with pytest.raises(UserError, match=message):
        rnd.train("CartPole-v1", out=str(tmp_path), **overrides)


def test_an_environment_is_given_by_its_name(tmp_path):
    with pytest.raises(UserError, match=r"takes a name, not function: .* 'module:function'"):
        rnd.train(lambda: None, out=str(tmp_path))  # type: ignore[arg-type]


def test_a_function_of_a_script_is_named_by_main(tmp_path):
    """As the message says."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "trained __main__:make" in done.stdout, done.stderr
    run = next((tmp_path / "runs").iterdir())
    with pytest.raises(UserError, match=r"is a function of the program that trained this: use rnd.load there"):
        rnd.load(run, trusted=True).evaluate(1)


SCRIPT = """
import gymnasium
import rnd

def make():
    return gymnasium.make("CartPole-v1")

if __name__ == "__main__":
    agent = rnd.train("__main__:make", frames=512, env={"num_envs": 4}, quiet=True, device="cpu")
    print("trained", agent.config.env.id)
"""


def test_public_names_exist():
    for name in rnd.__all__:
        assert getattr(rnd, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        rnd.trian  # noqa: B018
