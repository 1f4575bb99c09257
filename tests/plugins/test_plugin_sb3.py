"""Stable-Baselines3: the wrapper in its stacks, the callback with its algorithms, and RNDPPO."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

sb3 = pytest.importorskip("stable_baselines3")

from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback  # noqa: E402
from stable_baselines3.common.env_checker import check_env  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.logger import configure  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize  # noqa: E402

import rnd  # noqa: E402
from rnd.api import starting_config  # noqa: E402
from rnd.foundation.errors import UserError  # noqa: E402
from rnd.plugins.gymnasium import IntrinsicRewardEnv  # noqa: E402
from rnd.plugins.sb3 import RNDPPO, IntrinsicRewardCallback, VecIntrinsicReward, final_observations  # noqa: E402

SMALL = {"features": 8, "hidden": 8, "device": "cpu"}
RNDPPO_SMALL = {
    "n_steps": 16,
    "batch_size": 32,
    "n_epochs": 2,
    "device": "cpu",
    "seed": 1,
    "warm_up_steps": 8,
    "bonus_kwargs": {"features": 8, "hidden": 8},
}


class ImageEnv(gymnasium.Env):
    """Noise of 36x36 pixels in colour; episodes of five steps."""

    observation_space, action_space = spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 5, False, {}


def wrapped(env_id="CartPole-v1", num_envs=2, update_every=None, **options):
    venv = make_vec_env(env_id, num_envs, seed=0)
    bonus = rnd.Bonus("rnd", venv.observation_space, num_envs=num_envs, update_every=update_every, **SMALL)
    return VecIntrinsicReward(venv, bonus, **options)


def test_the_final_observation_is_scored_where_an_episode_ends():
    obs, final = np.array([[0.0], [5.0]]), np.array([9.0])
    infos = [{"terminal_observation": final}, {}]
    assert final_observations(obs, np.array([True, False]), infos).tolist() == [[9.0], [5.0]]
    assert obs.tolist() == [[0.0], [5.0]]
    inside = final_observations({"a": obs}, np.array([True, False]), [{"terminal_observation": {"a": final}}, {}])
    assert inside["a"].tolist() == [[9.0], [5.0]]


def test_the_wrapper_keeps_the_conventions_of_a_vec_env():
    venv = wrapped(coef=0.5)
    assert venv.reset().shape == (2, 4)
    for _ in range(30):
        obs, rewards, dones, infos = venv.step(np.array([0, 1]))
        assert (obs.shape, rewards.shape, rewards.dtype, dones.dtype) == ((2, 4), (2,), np.float32, bool)
        for reward, info in zip(rewards, infos, strict=True):
            assert reward == pytest.approx(info["extrinsic_reward"] + 0.5 * info["intrinsic_reward"])
    assert venv.get_attr("spec")[0].id == "CartPole-v1"
    assert venv.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [True, True]


def test_a_single_environment_passes_the_check_of_sb3():
    env = gymnasium.make("CartPole-v1")
    check_env(IntrinsicRewardEnv(env, rnd.Bonus("rnd", env.observation_space, update_every=8, **SMALL)))


@pytest.mark.parametrize("name", ["PPO", "A2C"])
def test_the_callback_updates_after_every_rollout_logs_and_saves(name, tmp_path):
    venv = wrapped()
    model = getattr(sb3, name)(
        "MlpPolicy", venv, n_steps=16, device="cpu", **({"batch_size": 32} if name == "PPO" else {})
    )
    model.set_logger(configure(str(tmp_path / "log"), ["csv"]))
    model.learn(128, callback=IntrinsicRewardCallback(save_path=str(tmp_path), save_freq=20), log_interval=1)
    assert venv.bonus.updates == 4
    assert "rnd/bonus_scale" in (tmp_path / "log" / "progress.csv").read_text()
    names = {path.name for path in tmp_path.glob("*.safetensors")}
    assert names == {f"bonus_{steps}_steps.safetensors" for steps in (40, 80, 120, 128)}
    loaded = VecIntrinsicReward.load(tmp_path / "bonus_128_steps.safetensors", make_vec_env("CartPole-v1", 2), "cpu")
    assert loaded.bonus.scale == venv.bonus.scale


def test_in_a_stack_with_normalisation_evaluation_and_checkpoints(tmp_path):
    venv = VecNormalize(wrapped(), norm_reward=True)
    # An evaluation has the same wrappers; its reward is the extrinsic one, and its bonus is frozen.
    inside = wrapped(num_envs=1, combine="info")
    inside.freeze()
    evaluated = VecNormalize(inside, norm_reward=False, training=False)
    model = sb3.PPO("MlpPolicy", venv, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
    evaluation = EvalCallback(evaluated, n_eval_episodes=2, eval_freq=32, log_path=str(tmp_path / "log"), verbose=0)
    checkpoints = CheckpointCallback(32, str(tmp_path), save_vecnormalize=True)
    model.learn(128, callback=[IntrinsicRewardCallback(save_path=str(tmp_path)), evaluation, checkpoints])
    assert inside.bonus.updates == 0
    assert np.isfinite(evaluation.last_mean_reward)
    assert evaluation.last_mean_reward == pytest.approx(
        np.mean(np.load(tmp_path / "log/evaluations.npz")["ep_lengths"][-1])
    )
    assert (tmp_path / "rl_model_128_steps.zip").exists()
    # Everything is loaded again, and goes on.
    bonus = VecIntrinsicReward.load(tmp_path / "bonus_128_steps.safetensors", make_vec_env("CartPole-v1", 2), "cpu")
    again = VecNormalize.load(str(tmp_path / "rl_model_vecnormalize_128_steps.pkl"), bonus)
    model = sb3.PPO.load(tmp_path / "rl_model_128_steps.zip", env=again)
    model.learn(64, callback=IntrinsicRewardCallback(), reset_num_timesteps=False)
    assert bonus.bonus.updates == 3


def off_policy(name, steps, tmp_path):
    """Train, save everything, load it, and go on."""
    env_id = {"DQN": "CartPole-v1", "SAC": "Pendulum-v1"}[name]
    cls, files = (
        getattr(sb3, name),
        {k: tmp_path / f"{name}-{k}" for k in ("model.zip", "bonus.safetensors", "buffer.pkl")},
    )
    venv = wrapped(env_id, num_envs=1, update_every=64)
    options = {"learning_starts": 50, "device": "cpu", "seed": 0, "buffer_size": 5000}
    options |= {"train_freq": 8} if name == "SAC" else {}
    model = cls("MlpPolicy", venv, **options)
    model.learn(steps, callback=IntrinsicRewardCallback(), log_interval=None)
    assert venv.bonus.updates == steps // 64
    model.save(files["model.zip"])
    model.save_replay_buffer(files["buffer.pkl"])
    venv.save(files["bonus.safetensors"])

    loaded = VecIntrinsicReward.load(files["bonus.safetensors"], make_vec_env(env_id, 1, seed=1), "cpu")
    assert loaded.bonus.scale == venv.bonus.scale
    model = cls.load(files["model.zip"], env=loaded)
    model.load_replay_buffer(files["buffer.pkl"])
    model.learn(steps // 2, callback=IntrinsicRewardCallback(), reset_num_timesteps=False, log_interval=None)
    assert model.num_timesteps == steps + steps // 2
    assert loaded.bonus.updates == (steps + steps // 2) // 64
    assert all(bool(torch.isfinite(p).all()) for p in model.policy.parameters())


@pytest.mark.parametrize("name", ["DQN", "SAC"])
def test_off_policy_algorithms_save_load_and_go_on(name, tmp_path):
    off_policy(name, 256, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["DQN", "SAC"])
def test_off_policy_algorithms_run_20000_steps(name, tmp_path):
    off_policy(name, 20_000, tmp_path)


def test_off_policy_algorithms_need_update_every():
    model = sb3.DQN("MlpPolicy", wrapped(num_envs=1), device="cpu", buffer_size=100)
    with pytest.raises(UserError, match="update_every=128"):
        model.learn(10, callback=IntrinsicRewardCallback())


def test_the_callback_needs_a_bonus():
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu")
    with pytest.raises(UserError, match="VecIntrinsicReward"):
        model.learn(8, callback=IntrinsicRewardCallback())


# --- RNDPPO ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["MlpPolicy", "CnnPolicy", "MultiInputPolicy", "continuous"])
def test_rndppo_learns_saves_loads_and_goes_on(kind, tmp_path):
    makers = {
        "MlpPolicy": lambda: make_vec_env("CartPole-v1", 2, seed=0),
        "CnnPolicy": lambda: VecFrameStack(DummyVecEnv([ImageEnv] * 2), 4),
        "MultiInputPolicy": lambda: DummyVecEnv([Goals] * 2),
        "continuous": lambda: make_vec_env("Pendulum-v1", 2, seed=0),
    }
    sde = {"use_sde": True, "sde_sample_freq": 4} if kind == "continuous" else {}
    policy = "MlpPolicy" if kind == "continuous" else kind
    model = RNDPPO(policy, makers[kind](), **RNDPPO_SMALL, **sde)
    before = [p.clone() for p in model.policy.value_net.parameters()]
    model.learn(96, log_interval=None)
    assert all(not torch.equal(p, q) for p, q in zip(model.policy.value_net.parameters(), before, strict=True))
    assert model.rollout_buffer.returns.shape == (32, 2)
    assert model.bonus.updates == 3
    model.save(tmp_path / "model")
    loaded = RNDPPO.load(tmp_path / "model", env=makers[kind](), device="cpu")
    assert loaded.bonus.updates == 3
    assert loaded.bonus.scale == model.bonus.scale
    for name, value in model.bonus.module.state_dict().items():
        assert torch.equal(loaded.bonus.module.state_dict()[name], value)
    obs = makers[kind]().reset()
    assert np.array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    loaded.learn(32, reset_num_timesteps=False, log_interval=None)
    assert loaded.num_timesteps == 128
    assert loaded.bonus.updates == 4


class Goals(gymnasium.Env):
    observation_space = spaces.Dict({"at": spaces.Box(-1, 1, (2,)), "goal": spaces.Discrete(3)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), 0.0, False, self.t == 5, {}


def test_rndppo_with_eval_and_checkpoint_callbacks(tmp_path):
    model = RNDPPO("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=0), **RNDPPO_SMALL)
    evaluation = EvalCallback(make_vec_env("CartPole-v1", 1), n_eval_episodes=2, eval_freq=16, verbose=0)
    callbacks = [evaluation, CheckpointCallback(16, str(tmp_path)), IntrinsicRewardCallback(save_path=str(tmp_path))]
    model.learn(64, callback=callbacks)
    assert np.isfinite(evaluation.last_mean_reward)
    assert RNDPPO.load(tmp_path / "rl_model_64_steps.zip").bonus.updates >= 1
    assert rnd.Bonus.load(tmp_path / "bonus_64_steps.safetensors", device="cpu").updates == 2
    assert RNDPPO.load(tmp_path / "rl_model_64_steps.zip", env=make_vec_env("CartPole-v1", 3)).n_envs == 3


def test_rndppo_bootstraps_the_extrinsic_stream_at_a_time_limit_and_never_cuts_the_intrinsic_one():
    model = RNDPPO("MlpPolicy", make_vec_env("CartPole-v1", 2), **RNDPPO_SMALL)
    obs = {"terminal_observation": np.ones(4, np.float32)}
    infos = [obs | {"TimeLimit.truncated": True}, obs | {"TimeLimit.truncated": False}]
    values = model._values_at_limits(infos, np.array([True, True]))
    with torch.no_grad():
        expected = float(model.policy.predict_values(torch.ones(1, 4))[0, 0])
    assert values.tolist() == pytest.approx([expected, 0.0])

    given = {}

    def spy(*args, **kwargs):
        given.update(kwargs)
        return rnd.two_streams(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rnd.plugins.sb3.two_streams", spy)
        model.learn(32)
    assert (given["gamma_ext"], given["gamma_int"], given["episodic_int"]) == (0.999, 0.99, False)


def test_rndppo_refuses_a_bonus_that_is_made_already():
    bonus = rnd.Bonus("rnd", spaces.Box(-1, 1, (4,)))
    with pytest.raises(UserError, match="makes its bonus itself: give its name"):
        RNDPPO("MlpPolicy", "CartPole-v1", bonus=bonus)


def test_rndppo_refuses_a_policy_with_one_value_head():
    with pytest.raises(UserError, match="TwoValueHeads"):
        RNDPPO(sb3.ppo.MlpPolicy, make_vec_env("CartPole-v1", 2), **RNDPPO_SMALL)


def test_rndppo_repeats_itself_for_a_seed():
    def weights():
        model = RNDPPO("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=3), **RNDPPO_SMALL)
        model.learn(64)
        return torch.cat([p.flatten() for p in model.policy.parameters()])

    assert torch.equal(weights(), weights())


def test_rndppo_has_the_rates_of_rnd_train_and_agents_of_before_keep_their_sizes(tmp_path):
    model = RNDPPO("MlpPolicy", "CartPole-v1", device="cpu")
    expected = starting_config("CartPole-v1", {"bonus": "rnd"})
    assert model.learning_rate == expected.lr
    assert (model.bonus.config.lr, model.bonus.config.bonus_options) == (expected.bonus_lr, expected.bonus_options)
    paper = {"features": 512, "hidden": 256, "keep": None, "lr": 1e-4}
    model = RNDPPO("MlpPolicy", "CartPole-v1", device="cpu", bonus_kwargs=paper)
    model.bonus_kwargs = {}  # what an agent of rnd 0.2 with default sizes has saved
    model.save(tmp_path / "old", exclude=["bonus_defaults"])
    for env in (None, make_vec_env("CartPole-v1", 1)):
        assert RNDPPO.load(tmp_path / "old", env=env).bonus.config.bonus_options.features == 512


@pytest.mark.parametrize(("bonus", "episodic", "rate"), [("rnd", False, 3e-5), ("e3b", True, 1e-3)])
def test_the_intrinsic_return_of_a_bonus_of_episodes_ends_with_them(bonus, episodic, rate):
    model = RNDPPO("MlpPolicy", "CartPole-v1", device="cpu", bonus=bonus)
    assert (model.episodic_int, model.bonus.config.lr) == (episodic, rate)
    assert RNDPPO("MlpPolicy", "CartPole-v1", device="cpu", bonus=bonus, episodic_int=False).episodic_int is False


def test_the_bonus_of_rndppo_reads_what_vec_normalize_normalises():
    venv = VecNormalize(make_vec_env("CartPole-v1", 2, seed=0), norm_reward=False)
    model = RNDPPO("MlpPolicy", venv, **RNDPPO_SMALL)
    bare = RNDPPO("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=0), **RNDPPO_SMALL)
    for each in (model, bare):
        each.action_space.seed(0)
        each.learn(16)  # the warm-up, whose actions are the same, and a rollout
    first, second = (m.bonus.module.whiten.moments for m in (model, bare))
    warm_up, rollout = RNDPPO_SMALL["warm_up_steps"] * 2, RNDPPO_SMALL["n_steps"] * 2
    assert float(first.count) == pytest.approx(warm_up + rollout, abs=1e-3)
    assert torch.allclose(first.mean, second.mean, atol=0.2)  # normalised observations would have std 1 instead
    assert torch.allclose(first.std, second.std, atol=0.2)


class ChannelsFirst(ImageEnv):
    observation_space = spaces.Box(0, 255, (3, 36, 36), np.uint8)


class Both(ImageEnv):
    """The image, and numbers around 100."""

    observation_space = spaces.Dict({"image": ImageEnv.observation_space, "numbers": spaces.Box(99, 101, (2,))})


@pytest.mark.parametrize(
    ("policy", "make"),
    [
        ("CnnPolicy", lambda: VecNormalize(DummyVecEnv([ImageEnv] * 2), norm_obs=False)),
        ("CnnPolicy", lambda: VecNormalize(DummyVecEnv([ChannelsFirst] * 2))),
        ("MlpPolicy", lambda: VecFrameStack(VecNormalize(make_vec_env("CartPole-v1", 2)), 2)),
    ],
    ids=["rewards", "images", "stacked"],
)
def test_rndppo_trains_where_vec_normalize_leaves_no_other_observations(policy, make):
    """Where the original observations are not those of the policy's space, the bonus reads what the policy reads."""
    model = RNDPPO(policy, make(), policy_kwargs={"normalize_images": False}, **RNDPPO_SMALL)
    assert int(model.learn(16).bonus.module.whiten.moments.count) == (8 + 16) * 2


def test_the_bonus_of_rndppo_reads_numbers_beside_images_as_the_environments_give_them():
    venv = VecNormalize(DummyVecEnv([Both] * 2), norm_obs_keys=["numbers"])
    model = RNDPPO("MultiInputPolicy", venv, **RNDPPO_SMALL)
    mean = model.learn(16).bonus.module.whiten.moments.mean
    assert torch.allclose(mean[-2:], torch.full((2,), 100.0, dtype=mean.dtype), atol=1)
