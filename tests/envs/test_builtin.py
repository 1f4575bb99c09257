"""The environments that come with rnd: rules, determinism, Gymnasium's checker."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rnd.envs.builtin import make_array_env
from rnd.envs.deep_sea import DeepSea
from rnd.envs.four_rooms import FourRooms
from rnd.envs.local import ArrayVectorEnv
from rnd.envs.noisy_tv import CHANNELS, MAX_STEPS, REMOTE, NoisyTV
from rnd.envs.splitmix import SplitMix64, next_of_each

UP, DOWN, LEFT, RIGHT = range(4)


@pytest.mark.parametrize("size", [4, 20, 64])
def test_deep_sea_right_all_the_way_finds_the_treasure(size):
    sea = DeepSea(size, 3, mapping_seed=7)
    env = ArrayVectorEnv(sea, 3)
    env.reset()
    for step in range(size):
        right = sea.right_SS[step, step]
        actions = np.array([right, 1 - right, right if step else 1 - right])
        result = env.step(actions)
        assert result.done.all().item() == (step == size - 1)
    returns = [episode.episode_return for episode in result.info.episodes]
    assert returns[0] == pytest.approx(0.99)
    assert returns[0] > env.spec.success_return
    # All left costs nothing; one left step at the start loses the treasure for good.
    assert returns[1] <= 0
    assert returns[2] < 0
    assert result.obs[:, 0].tolist() == [1, 1, 1]  # reset within the same step


def test_deep_sea_has_one_way_to_the_treasure():
    size = 6
    sea = DeepSea(size, 2**size)
    env = ArrayVectorEnv(sea, 2**size)
    env.reset()
    for step in range(size):
        result = env.step((np.arange(2**size) >> step) & 1)
    returns = np.array([episode.episode_return for episode in result.info.episodes])
    assert (returns > env.spec.success_return).sum() == 1


def test_deep_sea_mapping_follows_the_seed():
    assert np.array_equal(DeepSea(20, 1, 3).right_SS, DeepSea(20, 5, 3).right_SS)
    assert not np.array_equal(DeepSea(20, 1, 3).right_SS, DeepSea(20, 1, 4).right_SS)


def walk(env: ArrayVectorEnv, actions: list[int]) -> list[int]:
    """The rooms of one agent that takes `actions`."""
    return [int(env.step(np.array([action])).info.room[0]) for action in actions]


def test_noisy_tv_rooms_and_goal():
    env = ArrayVectorEnv(NoisyTV(1), 1)
    env.reset()
    to_goal = [RIGHT] * 6 + [DOWN] * 8 + [RIGHT] * 3
    rooms = walk(env, to_goal[:-1])
    assert sorted(set(rooms)) == [0, 2, 4]
    result = env.step(np.array([to_goal[-1]]))
    assert result.done.item() and result.reward.item() == 1 and not result.info.truncated.item()
    assert result.info.episodes[0].rooms == {0, 2, 4}


def test_noisy_tv_counts_the_room_that_is_entered_at_the_time_limit():
    actions = [REMOTE] * (MAX_STEPS - 4) + [RIGHT] * 4  # the fourth step to the right stands in the door of room 2
    env = ArrayVectorEnv(NoisyTV(1), 1)
    env.reset()
    walk(env, actions[:-1])
    result = env.step(np.array(actions[-1:]))
    assert result.info.truncated.item() and result.info.room.item() == 0
    assert result.info.entered == [2, 0] and result.info.episodes[0].rooms == {0, 2}

    single = gymnasium.make("rnd/NoisyTV", disable_env_checker=True)
    single.reset(seed=0)
    rooms = [single.step(action)[4]["room"] for action in actions]
    assert rooms[-2:] == [0, 2]


def test_noisy_tv_channel_changes_only_in_front_of_it():
    env = ArrayVectorEnv(NoisyTV(1, seed=5), 1)
    screen = env.spec.observation.shape[0] - 24
    env.reset()
    for _ in range(5):
        result = env.step(np.array([REMOTE]))
        assert result.obs[0, screen:].sum() == 0 and result.info.room.item() == 0
    assert walk(env, [UP]) == [1]
    images = {tuple(env.step(np.array([REMOTE])).obs[0, screen:].tolist()) for _ in range(180)}
    assert len(images) == CHANNELS
    still = {tuple(env.step(np.array([UP])).obs[0, screen:].tolist()) for _ in range(3)}
    assert len(still) <= 2  # it may have walked to the wall, but the image does not change


def test_noisy_tv_truncates_and_returns_the_last_observation():
    env = ArrayVectorEnv(NoisyTV(1), 1)
    start = env.reset().clone()
    for step in range(MAX_STEPS):
        result = env.step(np.array([RIGHT]))
        assert result.done.item() == (step == MAX_STEPS - 1)
    assert result.info.truncated.item()
    assert (result.obs == start).all()
    assert not (result.info.final_obs == start).all()


def test_four_rooms_has_a_way_of_44_moves_through_a_door_each():
    """Right through the upper door, down through the right one, to the opposite corner."""
    up, right, down, _ = range(4)
    env = ArrayVectorEnv(FourRooms(1), 1)
    assert env.reset().tolist() == [[pytest.approx(1 / 24), pytest.approx(1 / 24)]]
    way = [down] * 4 + [right] * 18 + [down] * 18 + [right] * 4
    rooms = walk(env, way[:-1])
    assert [room for room, before in zip(rooms, [None, *rooms], strict=False) if room != before] == [0, 1, 3]
    result = env.step(np.array([way[-1]]))
    assert result.done.item() and result.reward.item() == 1 and not result.info.truncated.item()
    assert result.info.episodes[0].length == len(way) == 44 and result.info.episodes[0].rooms == {0, 1, 3}
    walk(env, [up] * 3)  # against the wall
    assert env.buffers["obs"].tolist() == [[pytest.approx(1 / 24), pytest.approx(1 / 24)]]
    for step in range(3, 200):
        result = env.step(np.array([up]))
        assert result.done.item() == (step == 199)
    assert result.info.truncated.item()


@pytest.mark.parametrize("name", ["rnd/DeepSea-5", "rnd/FourRooms", "rnd/NoisyTV"])
@pytest.mark.parametrize("groups", [1, 3])
def test_save_restore_and_grouping(name, groups):
    def fresh(cut: int) -> ArrayVectorEnv:
        env = ArrayVectorEnv(make_array_env(name, 7, 1), 7, cut)
        env.reset()
        return env

    random = np.random.default_rng(0)
    env, twin = fresh(groups), fresh(1)
    actions = random.integers(0, env.spec.action.sizes[0], (600, 7))
    for t in range(300):
        env.step(actions[t])
    twin.load_state_dict(env.state_dict())
    for t in range(300, 600):
        a, b = env.step(actions[t]), twin.step(actions[t])
        for one, other in zip(
            (a.obs, a.reward, a.done, a.info.room), (b.obs, b.reward, b.done, b.info.room), strict=True
        ):
            assert (one == other).all()
        assert a.info.episodes == b.info.episodes


@pytest.mark.parametrize("name", ["rnd/DeepSea-4", "rnd/DeepSea-64", "rnd/FourRooms", "rnd/NoisyTV"])
@pytest.mark.filterwarnings("error::UserWarning")
def test_gymnasium_checker(name):
    check_env(gymnasium.make(name, disable_env_checker=True).unwrapped, skip_render_check=True)


def test_splitmix_array_is_splitmix():
    states = np.array([1, 2**63 + 5, 2**64 - 1], np.uint64)
    one_by_one = [SplitMix64(int(state)) for state in states]
    for _ in range(100):
        assert next_of_each(states).tolist() == [generator.next() for generator in one_by_one]
