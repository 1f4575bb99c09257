"""Any Gymnasium environment: observations, actions, autoreset modes, saving, names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rnd import envs
from rnd.config import Config, EnvConfig
from rnd.envs.gym_env import ActionTranslator, GymEnv
from rnd.envs.observations import make_encoder
from rnd.envs.spaces import ObservationEncoder
from rnd.envs.spec import ActionSpec, buffer_layout
from rnd.foundation.errors import RunError, UserError

LIMIT = 6


def encoded(space: spaces.Space, obs: object) -> np.ndarray:
    spec, encoder = make_encoder(space, "test")
    out = np.full(spec.shape, 99, spec.dtype)
    encoder(obs, out)
    return out


def test_observations_become_vectors_or_images():
    assert encoded(spaces.Discrete(4, start=2), 3).tolist() == [0, 1, 0, 0]
    assert encoded(spaces.MultiDiscrete([2, 3]), np.array([1, 2])).tolist() == [0, 1, 0, 0, 1]
    assert encoded(spaces.MultiBinary(3), np.array([1, 0, 1])).tolist() == [1, 0, 1]
    both = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Tuple([spaces.Discrete(2), spaces.Text(5)])})
    assert encoded(both, {"a": np.array([0.5, -0.5]), "b": (1, "abc")}).tolist() == [0.5, -0.5, 0, 1]
    image = np.full((100, 90, 3), 128, np.uint8)
    assert (encoded(spaces.Box(0, 255, image.shape, np.uint8), image) == 128).all()


REFUSED = (
    spaces.Graph(spaces.Discrete(2), None),
    spaces.Sequence(spaces.Discrete(2)),
    spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 255, (64, 64, 3), np.uint8)]),
)


@pytest.mark.parametrize("space", REFUSED)
def test_observations_that_no_network_here_can_read_are_refused(space):
    for around in (space, spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([space])})):
        with pytest.raises(UserError, match=f"test has {type(space).__name__} observations; Box, Discrete"):
            make_encoder(around, "test")
    with pytest.raises(UserError, match="test has no observation that a network can read"):
        make_encoder(spaces.Text(5), "test")


def test_a_text_beside_numbers_is_left_out_and_named():
    spec, _ = make_encoder(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Text(5)])}), "test")
    assert spec.notes == ("test: the networks do not see its text b.0",)


def test_an_empty_box_has_nothing_to_read():
    empty, vector = spaces.Box(-1, 1, (0,)), spaces.Box(-1, 1, (2,))
    image = spaces.Box(0, 255, (84, 84), np.uint8)
    obs = {"a": np.zeros(0, np.float32), "b": np.array([0.5, -0.5], np.float32), "c": np.full((84, 84), 7, np.uint8)}
    assert encoded(spaces.Dict({"a": empty, "b": vector}), obs).tolist() == [0.5, -0.5]
    assert (encoded(spaces.Dict({"a": spaces.Box(0, 1, (0, 3)), "c": image}), obs) == 7).all()
    batch = {"a": np.zeros((5, 0), np.float32), "b": np.zeros((5, 2), np.float32)}
    assert ObservationEncoder(spaces.Dict({"a": empty, "b": vector}))(batch).shape == (5, 2)
    with pytest.raises(UserError, match="test has no observation that a network can read"):
        make_encoder(empty, "test")


def test_what_is_one_hot_is_known():
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3), "c": spaces.MultiBinary(1)})
    assert make_encoder(space, "test")[0].one_hot == (False,) * 2 + (True,) * 4
    assert make_encoder(spaces.Box(-1, 1, (2,)), "test")[0].one_hot == ()


PICTURE = spaces.Box(0, 255, (40, 50, 3), np.uint8)
UNIT = spaces.Box(-1, 1, (4,), np.float32)


class Wrong(gymnasium.Env):
    """Returns `good` observations, and a wrong one after the action 1."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space, good: object, bad: object):
        self.observation_space, self.good, self.bad = space, good, bad

    def reset(self, *, seed=None, options=None):
        return self.good, {}

    def step(self, action):
        return self.bad if action else self.good, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "bad", "message"),
    [
        (PICTURE, np.zeros(PICTURE.shape, np.float32), "has the type float32"),
        (PICTURE, np.full(PICTURE.shape, np.nan), "has the type float64"),
        (PICTURE, np.zeros(PICTURE.shape, np.int16), "has the type int16"),
        (PICTURE, np.zeros((40, 50), np.uint8), r"has the shape \(40, 50\) instead of \(40, 50, 3\)"),
        (UNIT, np.zeros(1, np.float32), r"has the shape \(1,\) instead of \(4,\)"),
        (UNIT, np.zeros(4, complex), "has the type complex128"),
        (UNIT, np.array([0, 0, np.nan, 0]), "returned a NaN or infinite observation"),
        (UNIT, np.array([0, 0, 0, 3.5]), r"outside its space \(component 3 is 3.5\)"),
        (spaces.Box(0, 9, (2,), np.int64), np.array([3, 10]), r"outside its space \(component 1 is 10\)"),
        (spaces.Box(0, 9, (2,), np.int64), np.array([3, 0.5]), "where its space has integers"),
        (spaces.Discrete(3), -1, "-1 is not between 0 and 2"),
        (spaces.Discrete(3), 1.5, "1.5 is no integer"),
        (spaces.MultiDiscrete([2, 3]), np.array([0, 3]), "integers outside its space"),
        (spaces.MultiDiscrete([2, 3]), np.array([-1, 0]), "integers outside its space"),
        (spaces.MultiBinary(2), np.array([0, 2]), r"component 1 is 2"),
    ],
)
def test_an_observation_that_is_not_of_its_space_is_refused(space, bad, message, monkeypatch):
    """Row 38: in the middle of a run, with the number of the environment and of the step."""
    good = np.zeros(space.shape, space.dtype) if space.shape else 0
    monkeypatch.setitem(globals(), "wrong", lambda: Wrong(space, good, bad))
    with closing(envs.make(config("test_gym:wrong"))) as env:
        env.reset()
        for _ in range(7):
            env.step(np.zeros(4, int))
        with pytest.raises(RunError, match=r"^environment 2.* at step 7 of its episode") as refused:
            env.step(np.array([0, 0, 1, 0]))
        assert re.search(message, str(refused.value)), refused.value


class WrongVector(gymnasium.vector.VectorEnv):
    """Two environments that return the batch `bad` from the fourth step on."""

    num_envs, single_action_space, action_space = 2, spaces.Discrete(2), spaces.MultiDiscrete([2, 2])
    steps = 0

    def __init__(self, space: spaces.Space, bad: np.ndarray):
        self.single_observation_space, self.bad = space, bad
        self.observation_space = gymnasium.vector.utils.batch_space(space, 2)
        self.good = np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        return self.good, {}

    def step(self, actions):
        self.steps += 1
        return self.bad if self.steps > 3 else self.good, np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), {}


@pytest.mark.parametrize(
    ("space", "bad", "message"),
    [
        (PICTURE, np.zeros((2, *PICTURE.shape)), r"environment 0: .* type float64, .* at step 3"),
        (spaces.Discrete(3), np.array([0, 3]), r"environment 1: .* 3 is not between 0 and 2, at step 3"),
        (UNIT, np.full((2, 4), np.nan), r"environment 0 returned a NaN or infinite observation at step 3"),
        (UNIT, np.zeros((3, 4)), r"returned 3 observations instead of 2"),
    ],
)
def test_so_is_one_of_a_vector_environment(space, bad, message, monkeypatch):
    monkeypatch.setitem(globals(), "wrong", lambda: WrongVector(space, bad))
    with closing(envs.make(config("test_gym:wrong", 2))) as env:
        env.reset()
        for _ in range(3):
            env.step(np.zeros(2, int))
        with pytest.raises(RunError, match=message):
            env.step(np.zeros(2, int))


def test_numbers_of_another_width_and_rough_bounds_are_accepted():
    """Common in real environments, and harmless: float64 for float32, a list, a bound that is passed by a little."""
    spec, _ = make_encoder(UNIT, "test")
    assert spec.low == (-3,) * 4 and spec.high == (3,) * 4
    for obs in (np.full(4, 1.5), [1, 0, 1, 0], np.ones(4, bool)):
        assert encoded(UNIT, obs).tolist() == [float(x) for x in obs]
    assert encoded(spaces.Discrete(3), np.uint8(2)).tolist() == [0, 0, 1]
    assert make_encoder(spaces.Discrete(3), "test")[0].low == ()


def test_a_part_that_is_missing_is_named():
    with pytest.raises(RunError, match="its observation has no entry 'b'"):
        encoded(spaces.Dict({"a": UNIT, "b": UNIT}), {"a": np.zeros(4)})


def test_actions_are_translated():
    assert ActionTranslator(spaces.Discrete(3, start=5), "test")(np.array(2)) == 7
    assert ActionTranslator(spaces.Discrete(3, start=5), "test")(np.array([2, 0])).tolist() == [7, 5]
    square = ActionTranslator(spaces.MultiDiscrete([[2, 3], [4, 5]]), "test")
    assert square.spec == ActionSpec("multi_discrete", (2, 3, 4, 5))
    assert square(np.array([1, 2, 3, 4])).tolist() == [[1, 2], [3, 4]]
    box = ActionTranslator(spaces.Box(-2, 2, (1, 2), np.float64), "test")
    translated = box(np.array([5.0, -0.5], np.float32))
    assert translated.tolist() == [[2, -0.5]] and translated.dtype == np.float64
    switches = ActionTranslator(spaces.MultiBinary(3), "test")
    assert switches.spec.sizes == (2, 2, 2) and switches(np.array([1, 0, 1])).tolist() == [1, 0, 1]


def test_actions_of_several_parts_are_taken_apart():
    parts = {"a": spaces.Discrete(3, start=5), "b": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([4])])}
    both = ActionTranslator(spaces.Dict(parts), "test")
    assert both.spec == ActionSpec("multi_discrete", (3, 2, 2, 4))
    one = both(np.array([2, 1, 0, 3]))
    assert spaces.Dict(parts).contains(one) and one["a"] == 7 and one["b"][1].tolist() == [3]
    assert both(np.array([[2, 1, 0, 3]] * 5))["b"][0].tolist() == [[1, 0]] * 5
    boxes = ActionTranslator(spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Box(0, 9, (1,))]), "test")
    assert boxes.spec.low == (-1, -1, 0)
    assert [x.tolist() for x in boxes(np.array([5.0, 0, 5]))] == [[1, 0], [5]]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,))]), "discrete and continuous actions together"),
        (spaces.Dict({}), "test has no actions"),
        *((space, f"test has {type(space).__name__} actions; Box, Discrete") for space in REFUSED),
        (spaces.Text(3), "test has Text actions"),
    ],
)
def test_other_actions_are_refused(space, message):
    with pytest.raises(UserError, match=message):
        ActionTranslator(space, "test")


@pytest.mark.parametrize("name", ["reward", "terminated", "truncated"])
@pytest.mark.parametrize("shape", [(), (2, 1), (3,)])
def test_so_is_anything_but_one_number_per_copy(name, shape, monkeypatch):
    """One number for all would be given to each."""

    class Misshapen(WrongVector):
        def step(self, actions):
            obs, reward, terminated, truncated, info = super().step(actions)
            parts = {"reward": reward, "terminated": terminated, "truncated": truncated}
            parts[name] = np.zeros(shape, parts[name].dtype)
            return obs, *parts.values(), info

    monkeypatch.setitem(globals(), "wrong", lambda: Misshapen(UNIT, np.zeros((2, 4), np.float32)))
    with closing(envs.make(config("test_gym:wrong", 2))) as env:
        env.reset()
        with pytest.raises(RunError, match=rf"returned {name} of the shape {re.escape(str(shape))} instead of \(2,\)"):
            env.step(np.zeros(2, int))


class Both(gymnasium.Env):
    """Ends by itself in the step in which its time is over."""

    observation_space, action_space = spaces.Box(0, 9, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), 1.0, True, True, {}


def both(num_envs):
    return SyncVectorEnv([Both] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("factory", ["Both", "both"])
def test_an_end_at_the_time_limit_is_an_end(factory):
    """No value continues there."""
    with closing(envs.make(config(f"test_gym:{factory}", 2))) as env:
        env.reset()
        step = env.step(np.zeros(2, int))
        assert step.done.all() and not step.info.truncated.any()


class Walk(gymnasium.Env):
    """Counts its steps; terminates at LIMIT when the last action was 1, is truncated at LIMIT otherwise."""

    observation_space = spaces.Box(-100, 1e6, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.mark = 0, float(self.np_random.integers(1_000))
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        end = self.steps == LIMIT
        return self._observation(), float(self.steps), bool(end and action == 1), bool(end and action == 0), {}

    def _observation(self):
        return np.array([self.steps, self.mark], np.float32)


class Rewarding(Walk):
    """Its rewards are the numbers of its steps, in a form that a test chooses."""

    form: Callable[[float], object] = float

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        return obs, type(self).form(self.steps), terminated, truncated, info


@pytest.mark.parametrize(
    "form", [int, np.float32, np.array, lambda x: np.array([x]), lambda x: torch.tensor([[x]]), Fraction]
)
@pytest.mark.filterwarnings("error")
def test_a_reward_may_be_an_array_of_one_number(form, monkeypatch):
    monkeypatch.setattr(Rewarding, "form", staticmethod(form))
    with closing(envs.make(config("test_gym:Rewarding", 1))) as env:
        env.reset()
        assert [float(env.step(np.ones(1, int)).reward[0]) for _ in range(3)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("form", "said"),
    [(lambda x: np.array([x, x]), r"array\(\[1, 1\]\)"), (lambda x: None, "None"), (lambda x: "a", "'a'")],
)
def test_a_reward_that_is_no_number_is_named(form, said, monkeypatch):
    monkeypatch.setattr(Rewarding, "form", staticmethod(form))
    with closing(envs.make(config("test_gym:Rewarding", 2))) as env:
        env.reset()
        with pytest.raises(RunError, match=f"environment 0: its reward is {said}, not one number"):
            env.step(np.ones(2, int))


def walks(num_envs: int, mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv([Walk] * num_envs, autoreset_mode=mode)


def same_step(num_envs):
    return walks(num_envs, AutoresetMode.SAME_STEP)


def next_step(num_envs):
    return walks(num_envs, AutoresetMode.NEXT_STEP)


def disabled(num_envs):
    return walks(num_envs, AutoresetMode.DISABLED)


class Stumble(Walk):
    def step(self, action):
        raise ZeroDivisionError("a stone")


def stumbles(num_envs):
    return SyncVectorEnv([Stumble] * num_envs)


def three_walks():
    return walks(3, AutoresetMode.SAME_STEP)


def config(env_id: str, num_envs: int = 4, **options: object) -> Config:
    return Config(env=EnvConfig(id=env_id, num_envs=num_envs, **options), seed=5)


@pytest.mark.parametrize("factory", ["Walk", "same_step", "next_step", "disabled"])
def test_every_autoreset_mode_reports_the_same_ends(factory):
    """The same episodes from a single environment and from vector environments of every autoreset mode."""
    late = int(factory == "next_step")  # reports an end together with the step that resets
    with closing(envs.make(config(f"test_gym:{factory}"))) as env:
        env.reset()
        actions = np.array([0, 1, 0, 1])
        for _ in range(3):
            for step in range(1, LIMIT + 1 + late):
                result = env.step(actions)
                ended = step == LIMIT + late
                assert result.done.tolist() == [ended] * 4
                assert result.obs[:, 0].tolist() == [0 if ended else step] * 4
                assert result.reward.tolist() == [step if step <= LIMIT else 0] * 4
            assert result.info.truncated.tolist() == [True, False, True, False]
            assert result.info.final_obs[result.info.truncated][:, 0].tolist() == [LIMIT, LIMIT]
            for episode in result.info.episodes:
                assert (episode.length, episode.episode_return) == (LIMIT, LIMIT * (LIMIT + 1) / 2)


def test_a_restored_vector_environment_starts_new_episodes():
    with (
        closing(envs.make(config("test_gym:same_step"))) as env,
        closing(envs.make(config("test_gym:same_step"))) as other,
    ):
        env.reset()
        for _ in range(3):
            last = env.step(np.zeros(4, int)).obs.clone()
        other.load_state_dict(env.state_dict())
        result = other.step(np.zeros(4, int))
        assert result.info.truncated.all() and (result.info.final_obs == last).all()
        assert (result.obs[:, 0] == 0).all() and (result.obs[:, 1] != last[:, 1]).any()
        assert (other.step(np.zeros(4, int)).obs[:, 0] == 1).all()


def test_a_vector_environment_that_raises():
    with closing(envs.make(config("test_gym:stumbles"))) as env:
        env.reset()
        with pytest.raises(RunError, match="the vector environment raised ZeroDivisionError: a stone") as caught:
            env.step(np.zeros(4, int))
    assert "Traceback" in caught.value.__notes__[0]


def test_a_vector_environment_of_another_size_is_refused():
    with pytest.raises(UserError, match=r"made 3 environments, not 4; nearest: --env.num-envs 3"):
        envs.make(config("test_gym:three_walks"))
    with pytest.raises(UserError, match=r"leave out --env\.workers"):
        envs.make(config("test_gym:three_walks", num_envs=3, workers=2))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "MiniGrid-MultiRoom-N4-S5-v1", "FrozenLake-v1"])
def test_restored_exactly(env_id):
    random = np.random.default_rng(0)

    def step(env, actions):
        result = env.step(actions)
        return [
            result.obs.numpy().tobytes(),
            result.reward.numpy().tobytes(),
            result.done.numpy().tobytes(),
            result.info.episodes,
        ]

    with closing(envs.make(config(env_id, 3))) as env, closing(envs.make(config(env_id, 3))) as other:
        if env.spec.action.kind == "continuous":
            actions = random.uniform(-3, 3, (300, 3, *env.spec.action.shape)).astype(np.float32)
        else:
            actions = random.integers(0, env.spec.action.sizes[0], (300, 3))
        env.reset()
        for t in range(137):
            step(env, actions[t])
        other.load_state_dict(env.state_dict())
        for t in range(137, 300):
            assert step(env, actions[t]) == step(other, actions[t])


class Forgetful(Walk):
    """Draws from a generator that ignores the seed."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.mark = float(np.random.default_rng().integers(10**6))
        return self._observation(), {}


class Drifting(Walk):
    """Its steps, not its resets, draw from a generator that ignores the seed; may fail where it was not before."""

    def step(self, action):
        obs, *rest = super().step(action)
        self.mark += float(np.random.default_rng().integers(1, 10**6))
        return obs, *rest


@pytest.mark.parametrize(("name", "repeats"), [("Forgetful", False), ("Drifting", False), ("Walk", True)])
@pytest.mark.parametrize("workers", [0, 2])
def test_environments_that_ignore_their_seed_are_noticed(name, repeats, workers):
    with closing(envs.make(config(f"test_gym:{name}", workers=workers))) as env:
        env.check_repeats()
        assert env.repeats == repeats


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_ignores_its_seed_continues_with_new_episodes(noticed, workers):
    """Those of the saved state end as at a time limit, and are not reported."""
    with closing(envs.make(config("test_gym:Forgetful", workers=workers))) as env:
        env.reset()
        for _ in range(LIMIT - 1):
            last = env.step(np.zeros(4, int)).obs.clone()
        if noticed:
            env.check_repeats()
        env.load_state_dict(env.state_dict())
        assert env.restarted == {0, 1, 2, 3}
        result = env.step(np.zeros(4, int))
        assert result.info.truncated.all() and (result.info.final_obs == last).all() and not result.reward.any()
        assert result.info.episodes == [] and not env.restarted and (result.obs[:, 0] == 0).all()
        for _ in range(LIMIT):
            result = env.step(np.zeros(4, int))
        assert [episode.length for episode in result.info.episodes] == [LIMIT] * 4


def test_a_replay_that_ends_early_or_raises_is_no_continuation():
    env = GymEnv(Walk, "walk", seed=1)
    out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in buffer_layout(env.spec, 1).items()}
    env.reset(out, 0)
    for _ in range(LIMIT - 1):
        env.step(out, 0)
    assert env.load(env.save(), out, 0)
    longer = json.dumps({"seed": 1, "episode": 0, "steps": 9}).encode() + b"\n" + bytes(8 * 9)
    assert not env.load(longer, out, 0)
    env.env.step = None
    assert not env.load(longer, out, 0)


def test_every_episode_has_its_own_seed():
    env = GymEnv(Walk, "walk", seed=1)
    out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in buffer_layout(env.spec, 1).items()}
    marks = set()
    env.reset(out, 0)
    for _ in range(50 * LIMIT):
        env.step(out, 0)
        marks.add(float(out["obs"][0, 1]))
    assert len(marks) > 40


def test_the_saved_actions_are_those_of_the_episode():
    env = GymEnv(lambda: gymnasium.make("Pendulum-v1"), "Pendulum-v1", seed=1)
    out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in buffer_layout(env.spec, 1).items()}
    actions = np.random.default_rng(0).uniform(-2, 2, (210, 1)).astype(np.float32)
    env.reset(out, 0)
    for t, action in enumerate(actions, 1):
        out["action"][0] = action
        env.step(out, 0)
        first = t // 200 * 200  # the episode's time limit
        header, raw = env.save().split(b"\n", 1)
        assert json.loads(header) == {"seed": 1, "episode": t // 200, "type": "<f4"}
        assert raw == actions[first:t].tobytes()


def test_an_endless_episode_costs_a_byte_per_step_and_is_cut(monkeypatch):
    """Its actions are kept to restore it: without a limit, checkpoints would grow for ever."""
    monkeypatch.setattr("rnd.envs.gym_env.MAX_EPISODE_STEPS", 5)
    monkeypatch.setattr("test_gym.LIMIT", 10**9)
    env = GymEnv(Walk, "walk", seed=1)
    out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in buffer_layout(env.spec, 1).items()}
    env.reset(out, 0)
    sizes = []
    for _ in range(4):
        env.step(out, 0)
        assert not out["truncated"][0]
        sizes.append(len(env.save()))
    assert np.diff(sizes).tolist() == [1, 1, 1]
    env.step(out, 0)
    assert out["truncated"][0] and len(env.save()) < sizes[0]


@pytest.mark.parametrize("wrong", [b"\x02", b"\xff"])
def test_saved_actions_that_do_not_exist_are_refused(wrong):
    env = GymEnv(Walk, "walk", seed=1)
    out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in buffer_layout(env.spec, 1).items()}
    env.reset(out, 0)
    with pytest.raises(RunError, match="actions that the environment does not have"):
        env.load(env.save() + wrong, out, 0)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", "nearest: CartPole-v1"),
        ("ALE/MontezumaRevnge-v5", "nearest: ALE/MontezumaRevenge-v5"),
        ("rnd/DeepSea-3", "rnd/DeepSea-4 to rnd/DeepSea-64"),
        ("rnd/DeepSee", "nearest: rnd/DeepSea-"),
        ("MiniGrid-MultiRom-N4-S5-v0", "nearest: MiniGrid-MultiRoom-N4-S5-v0"),
        ("nowhere:make", "No module named 'nowhere'; it is neither in .* nor installed"),
        ("folder/mine.py", "unknown environment folder/mine.py; nearest: folder.mine:FUNCTION, its function that"),
        ("./mine.py:make", "cannot load the environment ./mine.py:make: nearest: mine:make$"),
        ("pyproject.toml", "unknown environment pyproject.toml; nearest: ALE/"),
        ("test_gym:nothing", "its module has no function 'nothing' and registers no such id"),
        ("minigrid:MiniGrid-MultiRom-N4-S5-v0", "nearest: MiniGrid-MultiRoom-N4-S5-v0"),
        ("multiroom", "nearest: MiniGrid-MultiRoom-"),
        ("Acrobt-v1", "nearest: Acrobot-v1"),
        ("test_gym:", "it is not of the form module:name"),
        ("test_gym:nobody", "test_gym:nobody returned nothing; let it return the environment"),
        ("test_gym:NoSpaces", "NoSpaces has no action_space and no observation_space; set it in __init__"),
        ("test_gym:sized", "missing a required argument: 'size'; .* give it a default"),
        ("test_gym:OldReset", "old gym: its reset takes no seed; .*shimmy"),
    ],
)
def test_unknown_names(env_id, message):
    with pytest.raises(UserError, match=message):
        envs.make(config(env_id))


def test_a_module_without_its_function_is_not_taken_for_a_game(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    with pytest.raises(UserError, match="unknown environment mine; nearest: mine:FUNCTION, its function that makes"):
        envs.make(config("mine"))


def nobody():
    """A factory that forgot its return."""


class NoSpaces(gymnasium.Env):
    """An environment that does not say what it takes and gives."""

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {}


def sized(size, num_envs):
    return Walk()


class OldReset(Walk):
    def reset(self):
        return super().reset()[0]


class OldResult(Walk):
    def reset(self, seed=None):
        return super().reset(seed=seed)[0]


class OldStep(Walk):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OldResult", "its reset does not return an observation and a dictionary"),
        ("OldStep", "its step returns 4 values"),
    ],
)
def test_environments_of_the_old_gym_get_advice(name, message):
    with (
        closing(envs.make(config(f"test_gym:{name}"))) as env,
        pytest.raises(RunError, match=f"{message}.*shimmy") as said,
    ):
        env.reset()
        env.step(np.zeros(4, int))
    assert not getattr(said.value, "__notes__", [])  # no traceback


def test_an_id_that_a_module_registers():
    """As in Gymnasium: `module:id` imports the module first."""
    plain, other = "MiniGrid-Empty-5x5-v0", "minigrid:MiniGrid-Empty-5x5-v0"
    with closing(envs.make(config(plain))) as env, closing(envs.make(config(other))) as same:
        assert (env.reset() == same.reset()).all() and same.spec.has_cells
    with closing(envs.make(config("gymnasium.envs.classic_control:CartPole-v1"))) as env:
        assert env.spec.observation.shape == (4,)


@pytest.mark.parametrize(
    ("env_id", "module", "message"),
    [
        ("Hopper-v5", "mujoco", r'pip install "gymnasium\[mujoco\]"'),
        ("LunarLander-v3", "Box2D", r"pip install Box2D"),
        ("MiniGrid-Empty-5x5-v0", "minigrid", "pip install minigrid"),
        ("AntMaze_UMaze-v5", "gymnasium_robotics", "pip install gymnasium-robotics"),
    ],
)
def test_missing_extras_are_named(env_id, module, message, monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] == module or name.startswith("gymnasium.envs.")]:
        if name not in ("gymnasium.envs.registration",):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    with pytest.raises(UserError, match=message):
        envs.make(config(env_id))
