"""Bonuses that reward the first visit within an episode (NovelD), in every stack: the environments keep the truth."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rnd
from rnd.foundation.errors import UserError
from rnd.plugins.gymnasium import IntrinsicReward, IntrinsicRewardEnv

SMALL = {"features": 8, "hidden": 8, "device": "cpu"}
FIRST_ONLY = {"alpha": 0.0}  # every first visit has a reward, not those alone that raise the novelty
ACTIONS = spaces.Discrete(2)


class Corridor(gymnasium.Env):
    """Nine cells, to the left or to the right; `new` says of every step whether its cell was new in the episode."""

    observation_space, action_space = spaces.Discrete(9), ACTIONS

    def __init__(self, length=7):
        self.length, self.new = length, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.t = 4, 0
        self.visited = {4}
        return self.cell, {}

    def step(self, action):
        self.cell = int(np.clip(self.cell + 2 * int(action) - 1, 0, 8))
        self.t += 1
        self.new.append(self.cell not in self.visited)
        self.visited.add(self.cell)
        return self.cell, 1.0, self.t == self.length, False, {}


def noveld(num_envs=1, **options):
    return rnd.Bonus("noveld", Corridor.observation_space, num_envs=num_envs, **SMALL, **FIRST_ONLY | options)


def assert_first_visits(rewards_TN, envs):
    """The very first step has no reward: one step has no std."""
    truth_TN = np.array([env.new for env in envs]).T
    assert 0.1 < truth_TN.mean() < 0.9
    assert np.array_equal(np.asarray(rewards_TN)[1:] != 0, truth_TN[1:])


def corridors():
    """Three, whose episodes end at different times."""
    return [Corridor(length) for length in (5, 7, 11)]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_gymnasiums_vector_environments(mode):
    inner, random, envs = corridors(), np.random.default_rng(0), 3
    venv = SyncVectorEnv([lambda env=env: env for env in inner], autoreset_mode=mode)
    venv = IntrinsicReward(venv, noveld(3, update_every=16))
    venv.reset(seed=1)
    done, found = np.zeros(envs, bool), [[] for _ in range(envs)]
    for _ in range(60):
        if mode == AutoresetMode.DISABLED and done.any():
            venv.reset(options={"reset_mask": done})
        _, _, terminated, truncated, infos = venv.step(random.integers(2, size=envs))
        for i in range(envs):
            if mode == AutoresetMode.NEXT_STEP and done[i]:
                assert infos["intrinsic_reward"][i] == 0
            else:
                found[i].append(infos["intrinsic_reward"][i])
        done = terminated | truncated
    for rewards, env in zip(found, inner, strict=True):
        assert_first_visits(np.array(rewards)[:, None], [env])


def test_one_environment_of_gymnasium_that_is_also_reset_early():
    inner, random, rewards = Corridor(), np.random.default_rng(0), []
    env = IntrinsicRewardEnv(inner, noveld())
    env.reset(seed=1)
    for t in range(40):
        _, _, terminated, truncated, info = env.step(int(random.integers(2)))
        rewards.append([info["intrinsic_reward"]])
        if terminated or truncated or t % 9 == 4:
            env.reset()
    assert_first_visits(rewards, [inner])


def test_stable_baselines3():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv

    from rnd.plugins.sb3 import VecIntrinsicReward

    inner, random, rewards = corridors(), np.random.default_rng(0), []
    venv = VecIntrinsicReward(DummyVecEnv([lambda env=env: env for env in inner]), noveld(3))
    venv.reset()
    for t in range(40):
        _, _, _, infos = venv.step(random.integers(2, size=3))
        rewards.append([info["intrinsic_reward"] for info in infos])
        if t == 20:
            venv.reset()
    assert_first_visits(rewards, inner)


def test_rndppo_gives_whole_rollouts():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv

    from rnd.plugins.sb3 import RNDPPO

    inner, rewards = corridors(), []
    venv = DummyVecEnv([lambda env=env: env for env in inner])
    options = {"features": 8, "hidden": 8, **FIRST_ONLY}
    sizes = {"n_steps": 8, "batch_size": 24, "warm_up_steps": 0, "device": "cpu"}
    model = RNDPPO("MlpPolicy", venv, bonus="noveld", bonus_kwargs=options, **sizes)
    observe = model.bonus.observe

    def recording(*given, **named):
        rewards.append(observe(*given, **named))
        return rewards[-1]

    model.bonus.observe = recording
    model.learn(3 * 8 * 3)
    model.learn(3 * 8 * 2)  # resets the environments within their episodes
    assert_first_visits(np.concatenate(rewards), inner)


@pytest.mark.parametrize("way", ["steps", "batches"])
def test_torchrl(way):
    pytest.importorskip("torchrl")
    from torchrl.collectors import Collector
    from torchrl.envs import GymWrapper, SerialEnv, TransformedEnv

    from rnd.plugins.torchrl import IntrinsicReward as Transform

    inner = corridors()
    env = SerialEnv(3, [lambda env=env: GymWrapper(env, categorical_action_encoding=True) for env in inner])
    transform = Transform(noveld(3))
    if way == "steps":
        env = TransformedEnv(env, transform)
    rewards = []
    for data in Collector(env, frames_per_batch=3 * 10, total_frames=3 * 40):
        data = transform(data) if way == "batches" else data
        rewards.append(data["next", "intrinsic_reward"].squeeze(-1).T)
    assert_first_visits(torch.cat(rewards)[:40], inner)


def observe_all(bonus, cells, dones):
    """Steps of one environment, one by one."""
    return [
        float(bonus.observe(np.array([b]), np.array([a]), done=np.array([end]))[0])
        for (a, b), end in zip(itertools.pairwise(cells), dones, strict=True)
    ]


def test_the_reward_is_the_rise_of_the_novelty():
    """Beside a few lines of numpy: |predictor - target|, from the networks' outputs."""
    bonus, cells, random = noveld(alpha=0.5), [4, 5, 4, 5, 6, 7, 6, 4], np.random.default_rng(0)
    bonus.observe(random.integers(9, size=(20, 1)), random.integers(9, size=(20, 1)), done=np.ones((20, 1), bool))
    bonus.freeze()
    one_hot = torch.eye(9)
    with torch.no_grad():
        whitened = bonus.module.whitened(one_hot[None])
        novelty = (bonus.module.predictor(whitened) - bonus.module.target(whitened)).square().mean(1).sqrt().numpy()
    expected = [max(novelty[b] - 0.5 * novelty[a], 0) / bonus.scale for a, b in itertools.pairwise(cells)]
    for again in (1, 2, 5, 6):
        expected[again] = 0
    assert sum(value > 0 for value in expected) >= 2
    bonus.reset_episodes()
    np.testing.assert_allclose(observe_all(bonus, cells, [False] * 7), expected, rtol=1e-5)


def test_a_frozen_bonus_knows_its_episodes_and_forgets_them_afterwards():
    bonus = noveld()
    observe_all(bonus, [4, 5, 6], [False, False])
    before = bonus.state_dict()
    bonus.freeze()
    rewards = observe_all(bonus, [6, 7, 6, 5, 7], [False] * 4)
    assert [reward != 0 for reward in rewards] == [True, False, False, False]  # 5 and 6 were visited before
    after = bonus.state_dict()
    assert all(torch.equal(after["episodes"][name], value) for name, value in before["episodes"].items())
    bonus.freeze(False)
    assert [reward != 0 for reward in observe_all(bonus, [6, 7, 5], [False] * 2)] == [True, False]


def test_a_frozen_bonus_that_loads_a_state_goes_on_with_its_episodes():
    plain, frozen = noveld(), noveld()
    observe_all(plain, [4, 5, 6], [False, False])
    frozen.freeze()
    frozen.load_state_dict(plain.state_dict())
    for bonus in (plain, frozen):
        observe_all(bonus, [6, 7, 8], [False, False])
    assert not frozen.frozen
    assert all(torch.equal(x, plain.state_dict()["episodes"][n]) for n, x in frozen.state_dict()["episodes"].items())


def test_the_end_of_an_episode_is_asked_for():
    with pytest.raises(UserError, match=r"give it done=terminated \| truncated"):
        noveld().observe(np.array([1]), np.array([0]))
    with pytest.raises(UserError, match="reads s_t: give it obs"):
        noveld().observe(np.array([1]), done=np.array([False]))


def test_pictures_need_no_stacks():
    space = spaces.Box(0, 255, (84, 84), np.uint8)
    bonus = rnd.Bonus("noveld", space, num_envs=2, **SMALL, **FIRST_ONLY)
    frames = np.random.default_rng(0).integers(0, 255, (6, 2, 84, 84), np.uint8)
    frames[5] = frames[1]
    rewards = bonus.observe(frames[1:], frames[:-1], done=np.zeros((5, 2), bool))
    assert (rewards[:4] != 0).all()
    assert (rewards[4] == 0).all()
    assert np.isfinite(list(bonus.update().values())).all()


def test_another_number_of_environments_begins_new_episodes(tmp_path):
    bonus = noveld()
    observe_all(bonus, [4, 5, 6], [False, False])
    bonus.save(tmp_path / "bonus.safetensors")
    same = rnd.Bonus.load(tmp_path / "bonus.safetensors", device="cpu")
    other = rnd.Bonus.load(tmp_path / "bonus.safetensors", device="cpu", num_envs=2)
    step = {"obs": np.array([6, 6]), "done": np.array([False, False])}
    assert (other.observe(np.array([5, 5]), **step) != 0).all()
    assert observe_all(same, [6, 5], [False]) == [0]


def test_the_oldest_visits_are_forgotten():
    bonus = noveld(memory=3)
    rewards = observe_all(bonus, [0, 1, 2, 3, 1, 0], [False] * 5)
    assert [reward != 0 for reward in rewards[1:]] == [True, True, False, True]


def test_damaged_visits_are_refused():
    bonus, other = noveld(), noveld()
    observe_all(bonus, [4, 5, 6], [False, False])
    state = bonus.state_dict()
    state["episodes"]["counts"] = torch.tensor([1, 2])
    with pytest.raises(ValueError, match="another number of environments"):
        other.load_state_dict(state)
