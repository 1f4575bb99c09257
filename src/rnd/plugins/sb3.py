"""The bonus for Stable-Baselines3: a wrapper and a callback for its algorithms, and the paper's agent as a PPO.

`VecIntrinsicReward` adds the bonus to the reward, so that PPO, A2C, DQN and SAC see one stream. `RNDPPO` is the paper's
method: two value heads, two horizons, and an intrinsic stream that episodes do not cut.

Legend: T steps, N environments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rnd.config import Config
from rnd.config.presets import with_bonus
from rnd.envs.spaces import replace_rows
from rnd.foundation.errors import UserError, install
from rnd.plugins.bonus import Bonus
from rnd.plugins.defaults import bonus_arguments, starting_config
from rnd.plugins.reward import Combine, IntrinsicRewardMixin
from rnd.training.returns import two_streams

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common.base_class import maybe_make_env
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.policies import (
        ActorCriticCnnPolicy,
        ActorCriticPolicy,
        BasePolicy,
        MultiInputActorCriticPolicy,
    )
    from stable_baselines3.common.type_aliases import Schedule
    from stable_baselines3.common.utils import obs_as_tensor
    from stable_baselines3.common.vec_env import (
        VecEnv,
        VecEnvWrapper,
        VecNormalize,
        VecTransposeImage,
        unwrap_vec_wrapper,
    )
except ImportError as error:
    raise ImportError(f"rnd.plugins.sb3 needs Stable-Baselines3: {install('sb3')}") from error


class VecIntrinsicReward(IntrinsicRewardMixin, VecEnvWrapper):
    """Adds an intrinsic reward to a VecEnv; both parts are in the infos. Inside of `VecNormalize` and `VecFrameStack`:
    the bonus normalises observations itself, and its target must not see another normaliser change.

    - `venv`: the environments.
    - `bonus`: a `rnd.Bonus` for their number.
    - `coef`: weight of the intrinsic reward in the sum.
    - `combine`: the reward that `step` returns: "sum" of both, "info": the extrinsic alone, or "only" the intrinsic.
    """

    def __init__(self, venv: VecEnv, bonus: Bonus, coef: float = 1.0, combine: Combine = "sum"):
        super().__init__(venv)
        self._use(bonus, coef, combine, venv.num_envs)
        self._actions: Any = None

    def reset(self) -> Any:
        obs = self.venv.reset()
        self.bonus.reset_episodes()
        self._remember(obs)
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        obs, extrinsic, dones, infos = self.venv.step_wait()
        following = final_observations(obs, dones, infos)
        intrinsic = self.bonus.observe(following, self._obs, self._actions, done=dones)
        self._remember(obs)
        for info, reward, bonus in zip(infos, extrinsic, intrinsic, strict=True):
            info["extrinsic_reward"], info["intrinsic_reward"] = float(reward), float(bonus)
        return obs, np.asarray(self._combined(extrinsic, intrinsic), np.float32), dones, infos


def final_observations(obs: Any, dones: np.ndarray, infos: Any) -> Any:
    """s_{t+1}: the last observation of an episode where one ended, instead of the first of the next."""
    return replace_rows(obs, {i: infos[i]["terminal_observation"] for i in np.flatnonzero(dones).tolist()})


class IntrinsicRewardCallback(BaseCallback):
    """Updates the bonus of a `VecIntrinsicReward` after every rollout, unless it has `update_every`; logs and saves it.

    - `save_path`: folder of the saved bonuses, NAME_STEPS_steps.safetensors; None saves nothing.
    - `save_freq`: calls between two of them, as CheckpointCallback counts; at the end the bonus is saved always.
    - `name_prefix`: NAME.
    - `verbose`: as in other callbacks.
    """

    def __init__(self, save_path: str | None = None, save_freq: int = 0, name_prefix: str = "bonus", verbose: int = 0):
        super().__init__(verbose)
        self.save_path, self.save_freq, self.name_prefix = save_path, save_freq, name_prefix

    def _init_callback(self) -> None:
        wrapper = unwrap_vec_wrapper(self.training_env, VecIntrinsicReward)
        found = getattr(self.model, "bonus", None) if wrapper is None else wrapper
        if found is None:
            raise UserError("IntrinsicRewardCallback needs an environment that is wrapped in VecIntrinsicReward")
        self.saved: Any = found
        self.bonus: Bonus = found if isinstance(found, Bonus) else found.bonus
        if isinstance(self.model, OffPolicyAlgorithm) and self.bonus.update_every is None:
            name = type(self.model).__name__
            raise UserError(f"{name} has no rollouts after which to update: make the bonus with update_every=128")
        if self.save_path is not None:
            Path(self.save_path).mkdir(parents=True, exist_ok=True)

    def _on_step(self) -> bool:
        if self.save_freq and self.n_calls % self.save_freq == 0:
            self._save()
        return True

    def _on_rollout_end(self) -> None:
        if self.bonus.update_every is None:
            self.bonus.update()
        for name, value in self.bonus.info.items():
            self.logger.record(f"rnd/{name}", value)

    def _on_training_end(self) -> None:
        self._save()

    def _save(self) -> None:
        if self.save_path is not None:
            self.saved.save(Path(self.save_path) / f"{self.name_prefix}_{self.num_timesteps}_steps.safetensors")


class TwoValueHeads:
    """Values [B, 2] instead of [B, 1]: extrinsic, intrinsic."""

    def _build(self: Any, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)  # type: ignore[misc]
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 2)
        if self.ortho_init:
            self.init_weights(self.value_net, gain=1)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


class TwoHeadMlpPolicy(TwoValueHeads, ActorCriticPolicy):
    """MlpPolicy with two value heads."""


class TwoHeadCnnPolicy(TwoValueHeads, ActorCriticCnnPolicy):
    """CnnPolicy with two value heads."""


class TwoHeadMultiInputPolicy(TwoValueHeads, MultiInputActorCriticPolicy):
    """MultiInputPolicy with two value heads."""


class RNDPPO(PPO):
    """PPO with the paper's exploration and two value heads. Arguments that are not listed are PPO's.

    Defaults are the paper's, but for the learning rate and the sizes and rates of the bonus, which are those with which
    `rnd train` starts on the same kind of observations.

    With `VecNormalize` as the outermost wrapper the policy reads normalised observations, and the bonus those of the
    environments, which it normalises itself. Under other wrappers, and of images that `VecNormalize` turns into numbers
    of another space, both read the same.

    - `gamma`: discount of the extrinsic stream.
    - `gamma_int`: discount of the intrinsic stream.
    - `vf_coef`: multiplies the mean over both value heads: 1.0 is one half of each squared error.
    - `ext_coef`, `int_coef`: weight of the stream's advantages in their sum.
    - `episodic_int`: the intrinsic return ends with the episode. None: with `e3b` it does, with others, as in the
      paper, it does not.
    - `bonus`: name of the bonus, as in `rnd.Bonus`.
    - `bonus_kwargs`: other arguments of `rnd.Bonus`.
    - `warm_up_steps`: steps of a random policy in every environment before the first rollout, which initialise the
      observation statistics; they are not counted in `num_timesteps`.
    """

    _last_obs: Any
    _last_episode_starts: Any
    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": TwoHeadMlpPolicy,
        "CnnPolicy": TwoHeadCnnPolicy,
        "MultiInputPolicy": TwoHeadMultiInputPolicy,
    }

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: Any,
        learning_rate: float | Schedule | None = None,
        n_steps: int = 128,
        batch_size: int = 256,
        n_epochs: int = 4,
        gamma: float = 0.999,
        gamma_int: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.1,
        normalize_advantage: bool = False,
        ent_coef: float = 0.001,
        vf_coef: float = 1.0,
        max_grad_norm: float = float("inf"),
        ext_coef: float = 2.0,
        int_coef: float = 1.0,
        episodic_int: bool | None = None,
        bonus: str = "rnd",
        bonus_kwargs: dict[str, Any] | None = None,
        warm_up_steps: int = 128,
        _init_setup_model: bool = True,
        **ppo: Any,
    ):
        if not isinstance(bonus, str):
            raise UserError("RNDPPO makes its bonus itself: give its name, bonus='rnd', and options as bonus_kwargs")
        env = None if env is None else maybe_make_env(env, ppo.get("verbose", 0))
        # `load` sets the model up later, after it has set what was saved. Agents of rnd 0.2 and before have not saved
        # the sizes of their bonus: they are the paper's.
        start = starting_config(env.observation_space) if _init_setup_model and env is not None else Config()
        super().__init__(
            policy,
            env,
            learning_rate=start.lr if learning_rate is None else learning_rate,
            n_steps=n_steps,
            batch_size=batch_size,
            n_epochs=n_epochs,
            gamma=gamma,
            gae_lambda=gae_lambda,
            clip_range=clip_range,
            normalize_advantage=normalize_advantage,
            ent_coef=ent_coef,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            _init_setup_model=False,
            **ppo,
        )
        self.bonus_defaults = bonus_arguments(start, bonus)
        episodic_int = with_bonus(start, bonus).episodic_int if episodic_int is None else episodic_int
        self.gamma_int, self.ext_coef, self.int_coef, self.episodic_int = gamma_int, ext_coef, int_coef, episodic_int
        self.bonus_name, self.bonus_kwargs, self.warm_up_steps = bonus, bonus_kwargs or {}, warm_up_steps
        self.warmed_up = False
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        if getattr(self.policy.value_net, "out_features", None) != 2:
            raise UserError(
                "RNDPPO needs a policy with two value heads: derive yours from rnd.plugins.sb3.TwoValueHeads"
            )
        arguments = {"gamma": self.gamma_int, "device": str(self.device), "seed": self.seed or 0}
        self.bonus = Bonus(
            self.bonus_name,
            self.observation_space,
            action_space=self.action_space,
            num_envs=self.n_envs,
            **self.bonus_defaults | arguments | self.bonus_kwargs,
        )

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """T steps; then the bonus of all of them, the returns and advantages of both streams, and the bonus's update:
        the order of the paper's Algorithm 1."""
        if not self.warmed_up:
            self._warm_up(env)
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        self.bonus.reset_episodes(self._last_episode_starts)
        seen: dict[str, list[Any]] = {name: [] for name in ("obs", "actions", "next_obs", "dones", "values", "cut")}
        obs = self._original(self._last_obs)
        for step in range(n_rollout_steps):
            if self.use_sde and (step == 0 or (self.sde_sample_freq > 0 and step % self.sde_sample_freq == 0)):
                self.policy.reset_noise(env.num_envs)
            with torch.no_grad():
                sampled, values, log_probs = self.policy(obs_as_tensor(self._last_obs, self.device))
            actions = sampled.cpu().numpy()
            new_obs, rewards, dones, infos = env.step(self._within_bounds(actions))
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            rollout_buffer.add(self._last_obs, actions, rewards, self._last_episode_starts, values[:, 0], log_probs)
            following, original = self._seen_by_bonus(new_obs, dones, infos)
            for name, value in zip(
                seen,
                (obs, actions, following, dones, values.cpu().numpy(), self._values_at_limits(infos, dones)),
                strict=True,
            ):
                seen[name].append(value)
            self._last_obs, self._last_episode_starts, obs = new_obs, dones, original
        with torch.no_grad():
            last = self.policy.predict_values(obs_as_tensor(self._last_obs, self.device))
        self._finish(rollout_buffer, {name: stacked(values) for name, values in seen.items()}, last.cpu().numpy())
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    def _finish(self, buffer: RolloutBuffer, seen: dict[str, Any], last: np.ndarray) -> None:
        """Both streams of a rollout. PPO's update then sees values and returns with two columns, which it flattens:
        its squared error is the mean over both heads."""
        intrinsic_TN = self.bonus.observe(seen["next_obs"], seen["obs"], seen["actions"], done=seen["dones"])
        values_TpN2 = np.concatenate([seen["values"], last[None]])
        targets = two_streams(
            buffer.rewards,
            intrinsic_TN,
            values_TpN2[..., 0],
            values_TpN2[..., 1],
            seen["dones"],
            truncated_values=seen["cut"],
            gamma_ext=self.gamma,
            gamma_int=self.gamma_int,
            gae_lambda=self.gae_lambda,
            ext_coef=self.ext_coef,
            int_coef=self.int_coef,
            episodic_int=self.episodic_int,
        )
        buffer.values, buffer.advantages = values_TpN2[:-1], np.asarray(targets.advantages_TN)
        buffer.returns = np.stack([targets.returns_ext_TN, targets.returns_int_TN], axis=-1)
        for name, value in self.bonus.update().items():
            self.logger.record(f"rnd/{name}", value)

    def _values_at_limits(self, infos: list[dict[str, Any]], dones: np.ndarray) -> np.ndarray:
        """V_ext(final observation) where a time limit ended an episode, 0 elsewhere."""
        values_N = np.zeros(len(dones), np.float32)
        for i in np.flatnonzero(dones).tolist():
            if infos[i].get("TimeLimit.truncated", False):
                final = self.policy.obs_to_tensor(infos[i]["terminal_observation"])[0]
                with torch.no_grad():
                    values_N[i] = float(self.policy.predict_values(final)[0, 0])
        return values_N

    @property
    def _normalizer(self) -> VecNormalize | None:
        """What normalises the observations, if it is outermost; Stable-Baselines3 itself puts channels first around it.
        None too where images became numbers of another space: then the bonus reads what the policy reads."""
        outer = self.env.venv if isinstance(self.env, VecTransposeImage) else self.env
        if not isinstance(outer, VecNormalize) or not outer.norm_obs:
            return None
        return outer if outer.observation_space == outer.venv.observation_space else None

    def _original(self, obs: Any) -> Any:
        """The newest observations, as the environments gave them, but with channels first."""
        if self._normalizer is None:
            return obs
        original = self._normalizer.get_original_obs()
        return self.env.transpose_observations(original) if isinstance(self.env, VecTransposeImage) else original

    def _seen_by_bonus(self, obs: Any, dones: np.ndarray, infos: Any) -> tuple[Any, Any]:
        """s_{t+1}, and the observations after resets, as the environments gave them."""
        original, normalizer = self._original(obs), self._normalizer
        if normalizer is not None:
            ends = {i: infos[i]["terminal_observation"] for i in np.flatnonzero(dones).tolist()}
            return replace_rows(original, {i: normalizer.unnormalize_obs(end) for i, end in ends.items()}), original
        return final_observations(obs, dones, infos), original

    def _within_bounds(self, actions: np.ndarray) -> Any:
        if not isinstance(self.action_space, spaces.Box):
            return actions
        if self.policy.squash_output:
            return self.policy.unscale_action(actions)
        return np.clip(actions, self.action_space.low, self.action_space.high)

    def _warm_up(self, env: VecEnv) -> None:
        """The steps of a random policy, for the observation statistics."""
        for _ in range(self.warm_up_steps):
            obs, _, dones, infos = env.step(np.stack([self.action_space.sample() for _ in range(env.num_envs)]))
            self.bonus.warm_up(self._seen_by_bonus(obs, dones, infos)[0])
            self._last_obs, self._last_episode_starts = obs, dones
        self.warmed_up = True

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "bonus"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, variables = super()._get_torch_save_params()
        return [*names, "bonus"], variables


def stacked(values: list[Any]) -> Any:
    """A rollout [T, N, ...] from its steps; observations may be dictionaries."""
    if isinstance(values[0], dict):
        return {name: np.stack([value[name] for value in values]) for name in values[0]}
    return np.stack(values)
