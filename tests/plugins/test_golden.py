"""The same stream of observations gives the same bonus, scale and predictor everywhere: there is one implementation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from replay_envs import ReplayEnv, ReplayVectorEnv, replay_vec_env
from streams import IMAGES, ROLLOUTS, assert_equal, copied, recorded

from rnd.plugins.gymnasium import IntrinsicReward, IntrinsicRewardEnv

BONUSES = ("rnd", "dynamics", "autoencoder", "count", "snd-v", "drnd")


def arguments(bonus, one):
    return {"obs": one.obs, "actions": one.actions} if bonus.reads_action else {}


@pytest.mark.parametrize("name", [*BONUSES])
def test_rollouts_are_those_of_the_trainer_to_the_bit(name):
    stream = recorded(name)
    bonus = stream.bonus()
    assert len(stream.rollouts) == ROLLOUTS >= 50
    assert sum(int(one.dones.sum()) for one in stream.rollouts) > 20
    for one in stream.rollouts:
        given = arguments(bonus, one)
        assert torch.equal(bonus.score(one.next_obs, **given), one.raw)
        assert torch.equal(bonus.observe(one.next_obs, **given), one.scaled)
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler)


@pytest.mark.parametrize("name", ["rnd", "dynamics"])
def test_steps_are_those_of_the_trainer(name):
    """The predictor's weights to the bit; scores and scale are computed in other batches."""
    stream = recorded(name)
    bonus = stream.bonus(update_every=len(stream.rollouts[0].raw))
    for one in stream.rollouts:
        for t, next_obs in enumerate(one.next_obs):
            given = {"obs": one.obs[t], "actions": one.actions[t]} if bonus.reads_action else {}
            torch.testing.assert_close(bonus.score(next_obs, **given), one.raw[t], rtol=1e-6, atol=1e-6)
            bonus.observe(next_obs, **given)
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler, close=True)


@pytest.mark.parametrize("name", ["rnd", "dynamics"])
def test_pictures_are_those_of_the_trainer_to_the_bit(name):
    stream = recorded(name, IMAGES, rollouts=4)
    bonus = stream.bonus()
    for one in stream.rollouts:
        assert torch.equal(bonus.observe(one.next_obs, **arguments(bonus, one)), one.scaled)
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("name", ["rnd", "dynamics"])
def test_the_gymnasium_wrapper_is_the_trainer(name, mode):
    if name == "dynamics" and mode == AutoresetMode.NEXT_STEP:
        pytest.skip("the observation before a transition is another one after each reset")
    stream = recorded(name)
    bonus = stream.bonus()
    env = ReplayVectorEnv(stream, mode)
    venv = IntrinsicReward(env, bonus)
    venv.reset()
    for one in stream.rollouts:
        t = 0
        while t < len(one.raw):
            resets = env.resetting
            # s_t after an end is not in the trainer's stream, and dynamics reads it: give it what the trainer saw
            venv._obs = one.obs[t].numpy()
            infos = venv.step(one.actions[t].numpy())[4]
            if resets:
                assert (infos["intrinsic_reward"] == 0).all()
            else:
                np.testing.assert_allclose(bonus._pending[-1].raw[0], one.raw[t], rtol=1e-6, atol=1e-6)
                t += 1
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler, close=True)


def test_the_wrapper_of_one_environment_is_the_trainer():
    stream = recorded("rnd", num_envs=1)
    bonus = stream.bonus()
    env = IntrinsicRewardEnv(ReplayEnv(stream), bonus)
    env.reset()
    for one in stream.rollouts:
        for t in range(len(one.raw)):
            _, _, terminated, _, info = env.step(0)
            np.testing.assert_allclose(bonus._pending[-1].raw[0], one.raw[t], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(info["intrinsic_reward"], bonus._pending[-1].scaled[0, 0])
            if terminated:
                env.reset()
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler, close=True)


def test_the_wrapper_of_stable_baselines3_is_the_trainer():
    sb3 = pytest.importorskip("rnd.plugins.sb3")
    stream = recorded("rnd")
    bonus = stream.bonus()
    venv = sb3.VecIntrinsicReward(replay_vec_env(stream), bonus)
    venv.reset()
    for one in stream.rollouts:
        for t in range(len(one.raw)):
            venv.step(one.actions[t].numpy())
            np.testing.assert_allclose(bonus._pending[-1].raw[0], one.raw[t], rtol=1e-6, atol=1e-6)
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler, close=True)


def test_rndppo_is_the_trainer_to_the_bit():
    """Rewards, scale and predictor; its policy is another one, and its environment shows the same stream to all."""
    sb3 = pytest.importorskip("rnd.plugins.sb3")
    stream, after = recorded("rnd"), []
    steps = len(stream.rollouts[0].raw)

    class Recording(sb3.RNDPPO):
        def _setup_model(self):
            super()._setup_model()
            self.bonus = stream.bonus()
            observe = self.bonus.observe
            self.bonus.observe = lambda *given, **named: rewards.append(observe(*given, **named)) or rewards[-1]

        def train(self):
            super().train()
            after.append((copied(self.bonus.module), copied(self.bonus.scaler)))

    rewards = []
    model = Recording("MlpPolicy", replay_vec_env(stream), n_steps=steps, batch_size=32, warm_up_steps=0, device="cpu")
    model.learn(steps * model.n_envs * len(stream.rollouts))
    assert len(after) == len(stream.rollouts)
    for one, reward, (state, scaler) in zip(stream.rollouts, rewards, after, strict=True):
        assert np.array_equal(reward, one.scaled.numpy())
        assert all(torch.equal(value, one.state[name]) for name, value in state.items())
        assert all(torch.equal(value, one.scaler[name]) for name, value in scaler.items())
