"""Environments written in JAX. Optional: where jax and gymnax are installed."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from helpers import on_device, resumed_exactly
from rnd.envs.jax_env import JaxEnv, Starts, Suite, make_jax_env
from rnd.foundation.errors import UserError

CARTPOLE = "gymnax:CartPole-v1"


@pytest.fixture
def gymnax():
    pytest.importorskip("jax")
    return pytest.importorskip("gymnax")


@pytest.mark.parametrize("env_id", [CARTPOLE, pytest.param("gymnax:Pendulum-v1", marks=pytest.mark.long)])
def test_a_run_resumes_to_the_bit(env_id, gymnax):
    with resumed_exactly(on_device(env_id, num_envs=4)) as (rows, _, _):
        assert env_id != CARTPOLE or rows[-1]["episodes"] > 0


def jitted_step(env, params):
    import jax

    return jax.jit(lambda key, state, action: env.step_env(key, state, action, params))


def test_steps_are_those_of_gymnax(gymnax):
    """Copy by copy, without vmap, from the states that the environment holds."""
    env, params = gymnax.make("CartPole-v1")
    one = jitted_step(env, params)
    ours, random, ended = make_jax_env(CARTPOLE, 3), np.random.default_rng(0), 0
    obs = ours.reset(7)
    for _ in range(30):
        before = ours.jax.tree.map(np.asarray, ours.state[1])
        actions = random.integers(2, size=3)
        step = ours.step(torch.from_numpy(actions))
        for i in range(3):
            state = ours.jax.tree.map(lambda x, i=i: ours.jax.numpy.asarray(x[i]), before)
            expected, _, reward, terminated, _ = one(ours._key(0), state, int(actions[i]))
            np.testing.assert_allclose(step.final_obs[i], expected, rtol=1e-5, atol=1e-6)
            assert float(step.reward[i]) == float(reward)
            assert bool(step.terminated[i]) == bool(terminated)
            assert torch.equal(step.obs[i], step.final_obs[i]) != bool(terminated)
        ended += int(step.terminated.sum())
        obs = step.obs
    assert ended > 1
    assert float(obs.abs().max()) < 3


def counting(limit=3, key_type="key"):
    """A count to a limit, from a random start, whose state has a typed key."""
    import jax
    from jax import numpy as jnp

    def reset(key):
        start = jax.random.randint(key, (), 0, 1000)
        return start, {"start": start, "time": jnp.int32(0), "key": key if key_type == "raw" else jax.random.key(3)}

    def step(key, state, action):
        state = state | {"time": state["time"] + 1}
        return state["start"], state, jnp.float32(1), state["time"] == 99, state["time"] == limit

    observation = SimpleNamespace(shape=())
    return Suite(reset, step, observation, type("Discrete", (), {"n": 2, "shape": ()})())


@pytest.mark.parametrize("key_type", ["typed", pytest.param("raw", marks=pytest.mark.long)])
def test_copies_that_end_get_new_starts(key_type, gymnax):
    env = JaxEnv(counting(key_type=key_type), 8, torch.device("cpu"), Starts(share=4))
    first = env.reset(1).clone()
    assert len(set(first.flatten().tolist())) == 8
    step = [env.step(torch.zeros(8, dtype=torch.int64)) for _ in range(3)][-1]
    assert bool(step.truncated.all())
    assert not bool(step.terminated.any())
    assert torch.equal(step.final_obs, first)
    assert len(set(step.obs.flatten().tolist())) == 2, "8 / 4 new starts per step, shared by all that end at once"
    other = JaxEnv(counting(key_type=key_type), 8, torch.device("cpu"), Starts(share=4))
    other.load_state_dict(env.state_dict())
    later = [[e.step(torch.zeros(8, dtype=torch.int64)).obs for _ in range(4)][-1] for e in (env, other)]
    assert torch.equal(*later)
    with pytest.raises(ValueError, match="another environment"):
        JaxEnv(counting(), 4, torch.device("cpu")).load_state_dict(env.state_dict())


def ended_at_will():
    """Action 1 ends an episode. What is observed is a part of the state, and says which start it was."""
    import jax
    from jax import numpy as jnp

    def reset(key):
        start = jax.random.uniform(key)
        return start, {"start": start}

    def step(key, state, action):
        return state["start"], state, jnp.float32(0), action == 1, jnp.bool_(False)

    return Suite(reset, step, SimpleNamespace(shape=()), type("Discrete", (), {"n": 2, "shape": ()})(), truncates=False)


def test_starts_are_renewed_every_few_steps_and_handed_out_in_turn(gymnax):
    def make():
        return JaxEnv(ended_at_will(), 8, torch.device("cpu"), Starts(share=2, steps=4))

    def end(env, *copies):
        actions = torch.zeros(8, dtype=torch.int64)
        actions[list(copies)] = 1
        return env.step(actions).obs.flatten()

    env, other = make(), make()
    begun = env.reset(1).flatten().tolist()
    a = end(env, 2, 5)
    b = end(env, 0)
    other.load_state_dict(env.state_dict())
    c, again = (end(e, 1, 3) for e in (env, other))
    pool = [float(x) for x in (a[2], a[5], b[0], c[1])]
    assert len({*pool, *begun}) == 12, "four starts of their own"
    assert float(c[3]) == pool[0], "the fifth shares the first"
    end(other)
    assert end(env).tolist() == [pool[2], pool[3], pool[0], pool[0], begun[4], pool[1], *begun[6:]]
    renewed = end(env, 0)
    assert float(renewed[0]) not in pool
    assert torch.equal(again, c)
    assert torch.equal(end(other, 0), renewed), "also in a run that was resumed between"
    assert env._step._cache_size() == env._renew._cache_size() == 1


def test_steps_are_compiled_once_and_kinds_of_observations_without(gymnax):
    """Also where a start has other types than a step; making an environment compiles nothing."""
    import jax
    from jax import numpy as jnp

    suite = counting()
    mixed = suite._replace(reset=lambda key: (suite.reset(key)[0], suite.reset(key)[1] | {"start": 5, "time": 0.0}))
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name))
    env = JaxEnv(mixed, 4, torch.device("cpu"))
    assert not [name for name in compiled if "backend_compile" in name]
    env.reset(1)
    for _ in range(3):
        env.step(torch.zeros(4, dtype=torch.int64))
    assert env._step._cache_size() == 1
    assert env.state[1]["time"].dtype == jnp.float32
    other = JaxEnv(mixed, 4, torch.device("cpu"))
    other.load_state_dict(env.state_dict())
    assert all(bool((a == b).all()) for a, b in zip(*(jax.tree.leaves(e.state) for e in (env, other)), strict=True))


def test_environments_without_time_limits_keep_no_final_observation(gymnax):
    env = JaxEnv(counting()._replace(truncates=False), 4, torch.device("cpu"))
    env.reset(1)
    step = env.step(torch.zeros(4, dtype=torch.int64))
    assert step.final_obs is None
    assert step.truncated is None


def test_brax_steps_are_its_own():
    """Copy by copy; the time limit is ours."""
    pytest.importorskip("jax")
    brax = pytest.importorskip("brax.envs")
    ours, one = make_jax_env("brax:fast", 2), brax.get_environment("fast")
    assert ours.action_space == spaces.Box(-1, 1, (one.action_size,))
    ours.reset(3)
    before = ours.jax.tree.map(lambda x: x[1], ours.state[1][1])
    actions = torch.full((2, one.action_size), 0.5)
    step = ours.step(actions)
    wanted = one.step(before, actions[1].numpy())
    np.testing.assert_allclose(step.final_obs[1], wanted.obs, rtol=1e-5, atol=1e-6)
    assert float(step.reward[1]) == float(wanted.reward)
    with pytest.raises(UserError, match="brax has no environment antt; nearest: ant"):
        make_jax_env("brax:antt")


def test_cells_of_navix_are_one_hot():
    pytest.importorskip("jax")
    navix = pytest.importorskip("navix")
    ours = make_jax_env("navix:Navix-Empty-5x5-v0", 2)
    obs, state = ours.reset(3), ours.state[1]
    cells = np.asarray(state.observation[0])
    assert cells.shape == navix.make("Navix-Empty-5x5-v0").observation_space.shape
    wanted = [np.eye(count)[cells[..., i]] for i, count in enumerate((11, 6, 4))]
    np.testing.assert_array_equal(obs[0].numpy(), np.concatenate(wanted, -1).ravel())


def test_unknown_names_are_refused_with_the_nearest(gymnax):
    with pytest.raises(UserError, match="gymnax has no environment CartPol-v1; nearest: CartPole-v1"):
        make_jax_env("gymnax:CartPol-v1")


def test_a_package_that_a_suite_does_not_name_is_named(monkeypatch):
    """gymnax imports six without requiring it."""

    def missing(name):
        raise ModuleNotFoundError("No module named 'six'", name="six.moves")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(
        UserError, match=r"gymnax:CartPole-v1 cannot be made \(No module named 'six'\): pip install six$"
    ):
        make_jax_env("gymnax:CartPole-v1")


@pytest.mark.parametrize(("missing", "command"), [("jax", "jax craftax"), ("craftax", "craftax"), ("brax", "brax")])
def test_a_missing_package_names_its_installation(missing, command, monkeypatch):
    if missing != "jax":
        pytest.importorskip("jax")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=f"pip install {command}$"):
        make_jax_env("brax:ant" if missing == "brax" else "craftax:Craftax-Symbolic-v1")
