"""TorchRL: the transform in environments and collectors. Its statistics move unless it is frozen."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("torchrl")

from streams import assert_equal, recorded
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, GymWrapper, SerialEnv, TransformedEnv, check_env_specs

import rnd
from rnd.foundation.errors import UserError
from rnd.plugins.torchrl import IntrinsicReward

SPACE = gymnasium.make("CartPole-v1").observation_space
SMALL = {"features": 8, "hidden": 8, "device": "cpu"}


def transformed(num_envs=1, name="rnd", **options):
    base = SerialEnv(num_envs, lambda: GymEnv("CartPole-v1")) if num_envs > 1 else GymEnv("CartPole-v1")
    bonus = rnd.Bonus(name, SPACE, action_space=spaces.Discrete(2), num_envs=num_envs, **SMALL, **options)
    return TransformedEnv(base, IntrinsicReward(bonus)), bonus


def statistics(bonus):
    return [float(bonus.module.whiten.moments.count), bonus.scale, *bonus.module.whiten.moments.mean.tolist()]


@pytest.mark.parametrize(("num_envs", "name"), [(1, "rnd"), (3, "rnd"), (3, "dynamics")])
def test_statistics_move_in_a_collector_and_stop_when_frozen(num_envs, name):
    """A TransformedEnv is in eval mode: a transform that looks at `training` never learns."""
    env, bonus = transformed(num_envs, name, update_every=8)
    assert not env.transform.training
    before, seen = statistics(bonus), []
    weights = bonus.trained[0].clone()
    for number, data in enumerate(Collector(env, frames_per_batch=24 * num_envs, total_frames=96 * num_envs)):
        reward = data["next", "intrinsic_reward"]
        assert reward.shape == (*data.batch_size, 1)
        assert bool((reward.flatten()[1:] > 0).any())
        seen.append(statistics(bonus))
        if number == 1:
            env.transform.freeze()
            weights_frozen = bonus.trained[0].clone()
    assert all(a != b for a, b in zip(before, seen[0], strict=True))
    assert all(a != b for a, b in zip(seen[0], seen[1], strict=True))
    assert seen[1] == seen[2] == seen[3]
    assert not torch.equal(weights, weights_frozen)
    assert torch.equal(weights_frozen, bonus.trained[0])


def test_specs_fit():
    env, _ = transformed(2)
    check_env_specs(env)
    assert env.rollout(4)["next", "reward"].eq(1).all()  # the extrinsic reward stays as it is


def test_the_final_observation_of_an_episode_is_scored():
    env, bonus = transformed(1)
    for data in Collector(env, frames_per_batch=64, total_frames=64):
        seen = torch.cat([steps.next_obs[0] for steps in bonus._pending])
        assert torch.equal(seen, data["next", "observation"])
        assert data["next", "done"].any()


def test_the_state_is_part_of_the_transforms():
    env, bonus = transformed(1, update_every=8)
    env.rollout(20, break_when_any_done=False)
    other, loaded = transformed(1, update_every=8)
    other.transform.load_state_dict(env.transform.state_dict())
    assert statistics(bonus) == statistics(loaded)


def test_a_batch_of_a_collector_is_the_trainer_to_the_bit():
    stream = recorded("rnd")
    bonus = stream.bonus()
    transform = IntrinsicReward(bonus)
    for one in stream.rollouts:
        envs = one.next_obs.shape[1]
        data = TensorDict({"next": {"observation": one.next_obs.transpose(0, 1)}}, [envs, len(one.raw)])
        reward = transform(data)["next", "intrinsic_reward"]
        assert torch.equal(reward.squeeze(-1).T, one.scaled)
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler)


def test_steps_of_an_environment_are_the_trainer():
    stream = recorded("rnd")
    bonus = stream.bonus()
    transform = IntrinsicReward(bonus)
    for one in stream.rollouts:
        for t, next_obs in enumerate(one.next_obs):
            after = TensorDict({"observation": next_obs}, [len(next_obs)])
            transform._step(TensorDict({}, [len(next_obs)]), after)
            torch.testing.assert_close(bonus._pending[-1].raw[0], one.raw[t], rtol=1e-6, atol=1e-6)
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler, close=True)


def test_the_entries_of_a_dictionary_space_are_read_also_nested():
    arm = spaces.Dict({"angle": spaces.Box(-1, 1, (2,)), "name": spaces.Text(5)})
    space = spaces.Dict({"view": spaces.Box(0, 255, (84, 84), np.uint8), "arm": arm})
    one, two = (rnd.Bonus("rnd", space, num_envs=2, features=8, hidden=8, device="cpu") for _ in range(2))
    view = torch.randint(0, 256, (2, 84, 84), dtype=torch.uint8)
    obs = {"view": view, "arm": {"angle": torch.tensor([[0.1, 0.2], [0.3, -0.4]])}}
    IntrinsicReward(one)._step(TensorDict({}, [2]), TensorDict(obs, [2]))
    two.observe(obs)
    assert torch.equal(one._pending[0].raw, two._pending[0].raw) and one._pending[0].raw.all()


IMAGE = spaces.Box(0, 255, (12, 12, 3), np.uint8)


class Images(gymnasium.Env):
    observation_space, action_space = IMAGE, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(0, 256, IMAGE.shape, np.uint8), {}

    def step(self, action):
        return self.np_random.integers(0, 256, IMAGE.shape, np.uint8), 0.0, False, False, {}


def test_images_are_found_under_torchrls_name():
    bonus = rnd.Bonus("rnd", IMAGE, num_envs=1, update_every=4, **SMALL)
    data = TransformedEnv(GymWrapper(Images()), IntrinsicReward(bonus)).rollout(6)
    assert data.get(("next", "pixels"), None) is not None and data["next", "intrinsic_reward"].shape == (6, 1)
    bonus = rnd.Bonus("rnd", IMAGE, num_envs=1, **SMALL)
    with pytest.raises(UserError, match=r"finds no 'image' among .*pixels.*; name it: IntrinsicReward\(bonus, in_key"):
        TransformedEnv(GymWrapper(Images()), IntrinsicReward(bonus, in_key="image")).rollout(2)


def test_another_name_is_found_by_its_shape_or_asked_for():
    bonus = rnd.Bonus("noveld", SPACE, num_envs=3, **SMALL)
    found, known = IntrinsicReward(bonus), torch.randn(3, 4)
    entries = {"state": known, "done": torch.zeros(3, 1, dtype=torch.bool), "reward": torch.zeros(3, 1)}
    found._step(TensorDict(entries, [3]), TensorDict(entries, [3]))
    assert found.in_keys == ["state"] and torch.equal(bonus._pending[0].next_obs[0], known)
    entries |= {"goal": torch.zeros(3, 4)}
    with pytest.raises(UserError, match=r"finds several observations: state, goal; name it"):
        IntrinsicReward(bonus)._step(TensorDict(entries, [3]), TensorDict(entries, [3]))
    IntrinsicReward(bonus, in_key="goal")._step(TensorDict(entries, [3]), TensorDict(entries, [3]))
    assert torch.equal(bonus._pending[1].next_obs[0], entries["goal"])


def test_the_transform_takes_no_name_of_a_bonus():
    with pytest.raises(UserError, match="takes a bonus that is made, not 'rnd'"):
        IntrinsicReward("rnd")
