"""The wrappers of Gymnasium environments: autoreset modes, infos, freezing, saving."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rnd
from rnd.foundation.errors import UserError
from rnd.plugins.gymnasium import IntrinsicReward, IntrinsicRewardEnv

SMALL = {"features": 8, "hidden": 8, "device": "cpu"}


class Counter(gymnasium.Env):
    """Shows how many steps it has made: 0, 1, ... 3, and starts again."""

    observation_space, action_space = spaces.Box(0, 10, (1,)), spaces.Discrete(2)

    def __init__(self, length=3):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == self.length, False, {}


def counters(mode, lengths=(3, 5), **options):
    venv = SyncVectorEnv([lambda n=n: Counter(n) for n in lengths], autoreset_mode=mode)
    bonus = rnd.Bonus("rnd", venv.single_observation_space, num_envs=len(lengths), **SMALL)
    return IntrinsicReward(venv, bonus, **options)


def scored(venv, steps):
    """The observations that were scored, and which of them counted, step by step."""
    venv.reset(seed=0)
    for _ in range(steps):
        if venv.mode == "DISABLED" and getattr(venv, "ended", np.zeros(2, bool)).any():
            venv.env.reset(options={"reset_mask": venv.ended})
        *_, terminated, truncated, _ = venv.step(venv.action_space.sample())
        venv.ended = terminated | truncated
    pending = venv.bonus._pending
    return [[int(x) if ok else None for x, ok in zip(s.next_obs[0, :, 0], s.valid[0], strict=True)] for s in pending]


def test_same_step_resets_score_the_final_observations():
    assert scored(counters(AutoresetMode.SAME_STEP), 7) == [[1, 1], [2, 2], [3, 3], [1, 4], [2, 5], [3, 1], [1, 2]]


def test_next_step_resets_are_no_transitions():
    expected = [[1, 1], [2, 2], [3, 3], [None, 4], [1, 5], [2, None], [3, 1]]
    assert scored(counters(AutoresetMode.NEXT_STEP), 7) == expected


def test_disabled_resets_are_the_users():
    assert scored(counters(AutoresetMode.DISABLED), 6) == [[1, 1], [2, 2], [3, 3], [1, 4], [2, 5], [3, 1]]


def test_real_vector_environments_of_gymnasium():
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        options = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
        venv = gymnasium.make_vec("CartPole-v1", num_envs=3, **options)
        bonus = rnd.Bonus("rnd", venv.single_observation_space, num_envs=3, update_every=16, **SMALL)
        venv = IntrinsicReward(venv, bonus)
        venv.reset(seed=0)
        venv.action_space.seed(0)
        for _ in range(100):
            _, reward, _, _, infos = venv.step(venv.action_space.sample())
            np.testing.assert_allclose(reward, infos["extrinsic_reward"] + infos["intrinsic_reward"])
            assert infos["_intrinsic_reward"].all()
        assert bonus.updates >= 5
        venv.close()


def test_dictionaries_with_final_observations():
    import minigrid  # noqa: F401  registers the environment

    venv = SyncVectorEnv([lambda: gymnasium.make("MiniGrid-Empty-5x5-v0", max_steps=4)] * 2, autoreset_mode="SameStep")
    bonus = rnd.Bonus("rnd", venv.single_observation_space, num_envs=2, update_every=4, **SMALL)
    venv = IntrinsicReward(venv, bonus)
    venv.reset(seed=0)
    for _ in range(12):
        venv.step(venv.action_space.sample())
    assert bonus.updates == 3


@pytest.mark.parametrize(("combine", "expected"), [("sum", 1.0), ("info", 1.0), ("only", 0.0)])
def test_rewards_are_combined_as_asked(combine, expected):
    venv = counters(AutoresetMode.SAME_STEP, coef=0.5, combine=combine)
    venv.reset(seed=0)
    for _ in range(4):
        _, reward, _, _, infos = venv.step(venv.action_space.sample())
    extra = 0.0 if combine == "info" else 0.5 * infos["intrinsic_reward"]
    np.testing.assert_allclose(reward, expected + extra)
    assert (infos["intrinsic_reward"] > 0).all()


def test_dynamics_reads_the_observation_before_the_step():
    venv = SyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    spaces_of = {"action_space": venv.single_action_space, "num_envs": 2}
    venv = IntrinsicReward(venv, rnd.Bonus("dynamics", venv.single_observation_space, **spaces_of, **SMALL))
    venv.reset(seed=0)
    for _ in range(5):
        venv.step(venv.action_space.sample())
    pairs = [(int(s.obs[0, 0, 0]), int(s.next_obs[0, 0, 0])) for s in venv.bonus._pending]
    assert pairs == [(0, 1), (1, 2), (2, 3), (0, 1), (1, 2)]


def test_saving_and_loading_continue_with_the_settings(tmp_path):
    venv = counters(AutoresetMode.SAME_STEP, coef=0.25, combine="only")
    scored(venv, 6)
    venv.save(tmp_path / "bonus.safetensors")
    loaded = IntrinsicReward.load(tmp_path / "bonus.safetensors", venv.env, device="cpu")
    assert (loaded.coef, loaded.combine) == (0.25, "only")
    for one in (venv, loaded):
        one.reset(seed=1)
        one.action_space.seed(1)
    rewards = [[one.step(np.array([0, 1]))[1] for _ in range(5)] for one in (venv, loaded) if one.reset(seed=1)]
    np.testing.assert_array_equal(*rewards)


def test_frozen_environments_repeat_their_rewards():
    venv = counters(AutoresetMode.SAME_STEP)
    scored(venv, 6)
    venv.bonus.update()
    venv.freeze()
    rewards = []
    for _ in range(2):
        venv.reset(seed=1)
        rewards.append([venv.step(np.array([0, 1]))[1] for _ in range(5)])
    np.testing.assert_array_equal(*rewards)


def test_a_single_environment_passes_gymnasiums_check():
    env = gymnasium.make("CartPole-v1")
    bonus = rnd.Bonus("rnd", env.observation_space, update_every=8, **SMALL)
    env = IntrinsicRewardEnv(env, bonus, coef=0.1)
    env.reset(seed=0)
    for _ in range(10):
        _, reward, _, _, info = env.step(env.action_space.sample())
    assert reward == pytest.approx(info["extrinsic_reward"] + 0.1 * info["intrinsic_reward"])
    assert info["intrinsic_reward"] > 0
    env.freeze()  # the check plays twice from one seed, and wants the same rewards
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"combine": "sun"}, "unknown combine 'sun'; nearest: sum"), ({"coef": float("nan")}, "coef must be a finite")],
)
def test_mistakes_of_a_wrapper_are_one_line(options, message):
    with pytest.raises(UserError, match=message):
        counters(AutoresetMode.SAME_STEP, **options)


def test_a_wrapper_takes_no_name_of_a_bonus():
    venv = SyncVectorEnv([Counter] * 3)
    for wrap in (IntrinsicReward, IntrinsicRewardEnv):
        with pytest.raises(UserError, match=r"takes a bonus that is made, not 'rnd': rnd\.Bonus\("):
            wrap(venv if wrap is IntrinsicReward else Counter(), "rnd")


def test_another_number_of_environments_is_refused():
    venv = SyncVectorEnv([Counter] * 3)
    with pytest.raises(UserError, match=r"make it with rnd.Bonus\(..., num_envs=3\)"):
        IntrinsicReward(venv, rnd.Bonus("rnd", venv.single_observation_space, num_envs=2, **SMALL))
