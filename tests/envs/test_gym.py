"""Any Gymnasium environment: observations, actions, autoreset modes, saving, names."""

from __future__ import annotations

import json
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rnd import envs
from rnd.config import Config, EnvConfig
from rnd.envs.gym_env import ActionTranslator, GymEnv
from rnd.envs.observations import make_encoder
from rnd.envs.spec import ActionSpec, buffer_layout
from rnd.errors import RunError, UserError

LIMIT = 6


def encoded(space: spaces.Space, obs: object) -> np.ndarray:
    spec, encoder = make_encoder(space, "test")
    out = np.full(spec.shape, 99, spec.dtype)
    encoder(obs, out)
    return out


def test_observations_become_vectors_or_pictures():
    assert encoded(spaces.Discrete(4, start=2), 3).tolist() == [0, 1, 0, 0]
    assert encoded(spaces.MultiDiscrete([2, 3]), np.array([1, 2])).tolist() == [0, 1, 0, 0, 1]
    assert encoded(spaces.MultiBinary(3), np.array([1, 0, 1])).tolist() == [1, 0, 1]
    both = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Tuple([spaces.Discrete(2), spaces.Text(5)])})
    assert encoded(both, {"a": np.array([0.5, -0.5]), "b": (1, "abc")}).tolist() == [0.5, -0.5, 0, 1]
    picture = np.full((100, 90, 3), 128, np.uint8)
    assert (encoded(spaces.Box(0, 255, picture.shape, np.uint8), picture) == 128).all()
    with pytest.raises(UserError, match="test has Graph observations"):
        make_encoder(spaces.Graph(spaces.Discrete(2), None), "test")


def test_actions_are_translated():
    assert ActionTranslator(spaces.Discrete(3, start=5), "test")(np.array(2)) == 7
    assert ActionTranslator(spaces.Discrete(3, start=5), "test")(np.array([2, 0])).tolist() == [7, 5]
    square = ActionTranslator(spaces.MultiDiscrete([[2, 3], [4, 5]]), "test")
    assert square.spec == ActionSpec("multi_discrete", (2, 3, 4, 5))
    assert square(np.array([1, 2, 3, 4])).tolist() == [[1, 2], [3, 4]]
    box = ActionTranslator(spaces.Box(-2, 2, (1, 2), np.float64), "test")
    translated = box(np.array([5.0, -0.5], np.float32))
    assert translated.tolist() == [[2, -0.5]] and translated.dtype == np.float64
    with pytest.raises(UserError, match="Discrete, MultiDiscrete and Box are supported"):
        ActionTranslator(spaces.MultiBinary(3), "test")


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


def test_an_environment_that_ignores_its_seed_cannot_be_restored():
    with closing(envs.make(config("test_gym:Forgetful"))) as env:
        env.reset()
        state = env.state_dict()
        with pytest.raises(RunError, match=r"environment 0: test_gym:Forgetful does not repeat itself"):
            env.load_state_dict(state)


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
    monkeypatch.setattr("rnd.envs.gym_env.LONGEST_EPISODE", 5)
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
        ("nowhere:make", "No module named 'nowhere'"),
        ("test_gym:nothing", "has no attribute 'nothing'"),
    ],
)
def test_unknown_names(env_id, message):
    with pytest.raises(UserError, match=message):
        envs.make(config(env_id))


@pytest.mark.parametrize(
    ("env_id", "module", "message"),
    [
        ("Hopper-v5", "mujoco", r'pip install "gymnasium\[mujoco\]"'),
        ("LunarLander-v3", "Box2D", r'pip install "gymnasium\[box2d\]"'),
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
