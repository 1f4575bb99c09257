"""Environments on the device: the same rollouts as on the host, without a host synchronisation per step."""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils._python_dispatch import TorchDispatchMode

import rnd
from helpers import on_device, resumed_exactly, started
from rnd import envs
from rnd.envs.factories import kind_of
from rnd.envs.tensor_env import TensorEnv, TensorEnvs, TensorStep
from rnd.foundation.errors import RunError, UserError
from rnd.training.collector import SynchronousCollector
from rnd.training.trainer import Trainer

EXAMPLE = "examples.tensor_gridworld:make"


def config_of(env_id=EXAMPLE, num_envs=8, iterations=4, **changes):
    return on_device(env_id, num_envs, iterations, **changes)


class Clock(TensorEnv):
    """Copy i counts to its time limit i + 2; continuous actions, two observations, no randomness."""

    observation_space = spaces.Dict({"time": spaces.Box(-np.inf, np.inf, (1,)), "copy": spaces.Box(0, 99, (2,))})
    action_space = spaces.Box(-1, 1, (2,))
    gives_final, bad_at = True, None

    def __init__(self, num_envs=4, device="cpu"):
        self.num_envs = num_envs
        self.time = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.taken = []

    def _obs(self):
        number = torch.arange(self.num_envs).float()
        return {"time": self.time[:, None].float(), "copy": number[:, None].repeat(1, 2)}

    def reset(self, seed):
        self.time.zero_()
        return self._obs()

    def step(self, actions):
        self.taken.append(actions)
        self.time = self.time + 1
        final, ends = self._obs(), self.time >= torch.arange(self.num_envs) + 2
        self.time = self.time * ~ends
        reward = actions.sum(1) + (torch.nan if self.bad_at == len(self.taken) else 0.0)
        return TensorStep(self._obs(), reward, torch.zeros_like(ends), ends, final if self.gives_final else None)

    def state_dict(self):
        return {"time": self.time}

    def load_state_dict(self, state):
        self.time = state["time"]


class NoFinal(Clock):
    gives_final = False


class Bad(Clock):
    bad_at = 30


class BadAtFirst(Clock):
    """While a random agent plays."""

    bad_at = 3


class BadStart(Clock):
    def reset(self, seed):
        return super().reset(seed) | {"time": torch.full((self.num_envs, 1), torch.nan)}


class Columns(Clock):
    """Rewards as a column, as many functions of tensors return them."""

    def step(self, actions):
        return (step := super().step(actions))._replace(reward=step.reward[:, None])


class Choices(Clock):
    observation_space = spaces.Discrete(4)


CLOCK = "test_tensor_collector:Clock"


@pytest.mark.parametrize("bonus", ["rnd", "noveld", "e3b"])
def test_the_example_resumes_to_the_bit(bonus):
    with resumed_exactly(config_of(bonus=bonus, iterations=9)) as (rows, trainer, again):
        assert rows[-1]["episodes"] > 0
        assert rows[-1]["places"] > 10 and min(trainer.episodes.rooms) >= 0
        final = [t.state_dict() for t in (trainer, again)]
        assert all(np.array_equal(final[0]["env"][name], final[1]["env"][name]) for name in final[0]["env"])


@pytest.mark.parametrize("env_id", [EXAMPLE, CLOCK])
def test_rollouts_are_those_of_the_host(env_id):
    """The same copies, stepped through the host's interface by the other collector."""
    config = config_of(env_id)
    with closing(envs.make(config)) as env, closing(envs.make(config)) as other:
        trainer = started(config, env)
        generator = torch.Generator().manual_seed(1)
        collectors = [trainer.collector]
        collectors.append(SynchronousCollector(config, other, trainer.policy, trainer.device, generator))
        trainer.collector.generator.manual_seed(1)
        other.resets = env.resets
        for collector in collectors:
            collector.start()
        ended = 0
        for _ in range(12):
            one, two = (collector.collect() for collector in collectors)
            state, expected = one.state_dict(), two.state_dict()
            assert state["episodes"] == expected["episodes"]
            assert state["rooms_entered"] == expected["rooms_entered"]
            for part in ("tensors", "transitions"):
                assert all(torch.equal(x, expected[part][name]) for name, x in state[part].items()), part
            ended += len(one.episodes)
        assert ended >= 8
        assert env_id == EXAMPLE or float(one.truncation_bootstrap_TN.abs().max()) > 0


def test_the_bonus_is_that_of_rnd_bonus_to_the_bit():
    config, rewards = config_of(iterations=6), []
    with closing(envs.make(config)) as env:
        trainer = started(config, env)
        bonus = rnd.Bonus(
            "rnd",
            spaces.Box(0, 1, (26,)),
            num_envs=8,
            lr=config.bonus_lr,
            gamma=config.gamma_int,
            minibatches=2,
            epochs=2,
            seed=config.seed,
            device="cpu",
            features=8,
            hidden=8,
            keep=config.keep,
        )
        bonus.module.load_state_dict(copy.deepcopy(trainer.bonus.state_dict()))
        trainer.scaler.register_forward_hook(lambda _, given, result: rewards.append(result.clone()))
        learn, seen = trainer.learn, []
        trainer.learn = lambda rollout: seen.append(rollout.transitions.next_obs.clone()) or learn(rollout)
        rows = list(trainer.train())
    assert len(rewards) == len(rows) == 6
    for next_obs, reward, row in zip(seen, rewards, rows, strict=True):
        assert torch.equal(bonus.observe(next_obs), reward)
        assert row["bonus_scale"] == bonus.scale
        bonus.update()


class Synchronisations(TorchDispatchMode):
    """Counts operations for which a host would wait for a GPU."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in self.WAITING or (name == "index" and any(x is not None and x.dtype == torch.bool for x in args[1])):
            self.found.append(name)
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("env_id", [EXAMPLE, CLOCK])
def test_no_step_waits_for_the_device(env_id, monkeypatch):
    config = config_of(env_id)
    with closing(envs.make(config)) as env:
        trainer = started(config, env)
        monkeypatch.setattr(TensorEnvs, "read_log", lambda self, log, bootstraps: ([], []))
        with Synchronisations() as waits:
            trainer.collector.collect()
            assert waits.found == []
            bool(torch.ones(2).any())
            assert waits.found, "the test sees one"


def test_actions_are_clipped_to_the_space_and_observations_joined():
    with closing(envs.make(config_of(CLOCK, num_envs=4))) as env:
        env.reset()
        step = env.step(np.array([[5.0, -7.0]] * 4, np.float32))
        assert env.env.taken[-1].tolist() == [[1.0, -1.0]] * 4
        assert env.spec.observation.shape == (3,)
        assert sorted(step.obs[2].tolist()) == [1.0, 2.0, 2.0]
        assert kind_of(CLOCK) == "numbers"


def test_a_value_that_is_not_finite_stops_the_run():
    config = config_of("test_tensor_collector:Bad", num_envs=4)
    with closing(envs.make(config)) as env:
        env.env.taken.clear()
        trainer = started(replace(config, bonus="none", normalize_obs=False), env)
        with pytest.raises(
            RunError, match=r"environment 0 returned a reward or observation that is NaN .* stops before"
        ):
            list(trainer.train())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("BadAtFirst", r"environment 0 returned a reward or observation that is NaN or infinite to a random agent"),
        ("BadStart", "environment 0 returned a NaN or infinite observation at its reset; the run stops before"),
        ("Columns", r"returned reward of the shape \(4, 1\) instead of \(4,\)"),
    ],
)
def test_wrong_values_before_the_first_rollout_stop_the_run_too(name, message):
    """Before they are in the statistics, and so in the first checkpoint."""
    config = config_of(f"test_tensor_collector:{name}", num_envs=4)
    with closing(envs.make(config)) as env, pytest.raises(RunError, match=message) as error:
        started(config, env)
    assert "\n" not in str(error.value)


def test_time_limits_without_final_observations_are_refused_or_end_the_return():
    config = config_of("test_tensor_collector:NoFinal", num_envs=4)
    with closing(envs.make(config)) as env:
        with pytest.raises(RunError, match=r"returns no final_obs.*--no-bootstrap-truncated"):
            list(started(config, env).train())
        assert list(started(replace(config, bootstrap_truncated=False), env).train())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overlap": True}, "steps on the device, where --overlap hides nothing"),
        ({"workers": 2}, "without workers"),
        ({"id": "test_tensor_collector:three"}, "made 3 environments, not 8"),
        ({"id": "test_tensor_collector:Choices"}, "encoded on the host one by one"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, message):
    config = config_of(changes.pop("id", CLOCK), overlap=changes.pop("overlap", False))
    config = replace(config, env=replace(config.env, **changes))
    with pytest.raises(UserError, match=message) as error:
        Trainer(config, envs.make(config))
    assert "\n" not in str(error.value)


def three():
    return Clock(3)


def test_randomness_from_elsewhere_is_noticed():
    class Random(Clock):
        def reset(self, seed):
            self.time = torch.randint(0, 9, (self.num_envs,))
            return self._obs()

    for kind, repeats in ((Clock, True), (Random, False)):
        env = TensorEnvs(kind(64), "mine", 64, 1, torch.device("cpu"))
        env.check_repeats()
        assert env.repeats == repeats


def test_rows_of_copies_are_divided_among_ranks_and_other_states_are_not():
    config = config_of(CLOCK, num_envs=4)
    with closing(envs.make(config)) as env, closing(envs.make(config_of())) as grid:
        env.reset()
        env.step(np.zeros((4, 2), np.float32))
        env.step(np.zeros((4, 2), np.float32))
        two = env.reshard([env.state_dict()], 2)
        assert [state["env.state.time"].tolist() for state in two] == [[0, 2], [2, 2]]
        assert env.reshard(two, 1)[0]["env.state.time"].tolist() == [0, 2, 2, 2]
        grid.reset()
        with pytest.raises(RunError, match=r"env\.state\.generator that tensors on cpu cannot split"):
            grid.reshard([grid.state_dict()], 2)
