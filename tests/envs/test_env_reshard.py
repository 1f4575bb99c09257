"""Saved environments of one number of ranks as those of another: rows stay together, in order."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from rnd import envs
from rnd.config.presets import preset
from rnd.envs.interface import VectorEnv
from rnd.envs.native_envs import unsupported_reason
from rnd.foundation.errors import RunError

N = 12
ENVS = [
    "CartPole-v1",
    "rnd/NoisyTV",
    "MiniGrid-MultiRoom-N2-S4-v0",
    "ALE/MontezumaRevenge-v5",
    "test_env_reshard:cart_poles",
]


def cart_poles(num_envs):
    """A vector environment of Gymnasium."""
    from gymnasium import make_vec

    return make_vec("CartPole-v1", num_envs)


def make(env_id: str, num_envs: int = N) -> VectorEnv:
    config = preset(env_id)
    config = replace(config, env=replace(config.env, num_envs=num_envs, workers=0), device="cpu")
    if env_id.startswith("ALE/") and unsupported_reason(config):
        pytest.skip(f"native core: {unsupported_reason(config)}")
    return envs.make(config)


def play(env: VectorEnv, steps: int, rows: slice, seed: int) -> list[torch.Tensor]:
    """Results of steps with the actions of `rows`, drawn for N environments."""
    actions = np.random.default_rng(seed).integers(0, env.spec.action.sizes[0], (steps, N))
    results = (env.step(action[rows]) for action in actions)
    return [tensor.clone() for step in results for tensor in (step.obs, step.reward, step.done, step.info.room)]


@pytest.fixture(scope="module", params=ENVS)
def played(request):
    """An environment of N rows and its state after some steps."""
    with closing(make(request.param)) as env:
        env.reset()
        play(env, 60, slice(0, N), seed=0)
        yield request.param, env, env.state_dict()


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert list(one) == list(other)
    for name, array in one.items():
        assert array.dtype == other[name].dtype and np.array_equal(array, other[name]), name


@pytest.mark.parametrize("way", [(2, 1), (3, 2, 4, 1), (12, 1)])
def test_there_and_back_is_the_same_state(played, way):
    _, env, state = played
    states = [state]
    for world in way:
        states = env.reshard(states, world)
        assert [len(part["returns"]) for part in states] == [N // world] * world
    assert_equal(states[0], state)


def test_the_same_number_of_ranks_changes_nothing(played):
    _, env, state = played
    assert env.reshard([state], 1)[0] is state


def test_every_entry_has_a_layout(played):
    _, env, _ = played
    assert env._state_layout().keys() == env._save().keys()


def test_a_rank_continues_with_its_environments(played):
    """The second of three ranks has environments 4 to 7: the same actions give the same results."""
    env_id, env, state = played
    if env_id.startswith("test_env_reshard:"):
        pytest.skip("a vector environment starts new episodes")
    with closing(make(env_id, 4)) as third:
        env.load_state_dict(state)
        third.load_state_dict(env.reshard([state], 3)[1])
        assert np.array_equal(third.buffers["final_room"], state["buffer.final_room"][4:8])
        whole, own = play(env, 40, slice(0, N), seed=1), play(third, 40, slice(4, 8), seed=1)
        assert all(torch.equal(one[4:8], other) for one, other in zip(whole, own, strict=True))


def test_of_a_shared_value_the_largest_is_taken():
    with closing(make("test_env_reshard:cart_poles")) as env:
        env.reset()
        halves = env.reshard([env.state_dict()], 2)
        halves[1]["env.loads"] = np.array(3)
        assert env.reshard(halves, 1)[0]["env.loads"] == 3


def test_an_unknown_entry_is_refused(played):
    _, env, state = played
    halves = env.reshard([state], 2)
    for wrong in ([state | {"env.wind": np.zeros(N)}], [halves[0], halves[1] | {"env.wind": np.zeros(6)}]):
        with pytest.raises(RunError, match=r"an entry env\.wind that .* cannot split among ranks; resume with"):
            env.reshard(wrong, 3)
