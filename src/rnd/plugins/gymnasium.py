"""The bonus as wrappers of Gymnasium environments.

    venv = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync")
    bonus = rnd.Bonus("rnd", venv.single_observation_space, num_envs=8, update_every=128)
    venv = IntrinsicReward(venv, bonus, coef=0.5)

At the end of an episode s_{t+1} is the last observation of the episode, not the first of the next one.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorWrapper

from rnd.envs.gym_vector import autoreset_mode, row_of
from rnd.envs.spaces import replace_rows
from rnd.plugins.bonus import Bonus
from rnd.plugins.reward import Combine, IntrinsicRewardMixin

KEYS = ("extrinsic_reward", "intrinsic_reward")


class IntrinsicReward(IntrinsicRewardMixin, VectorWrapper):
    """Adds an intrinsic reward to a vector environment; both parts are in the infos.

    The autoreset mode is read from the environment. SAME_STEP: the final observations in the infos are scored where
    episodes end. NEXT_STEP: the step that resets is no transition; its intrinsic reward is 0 and nothing learns from
    it. DISABLED: you reset, and every step is a transition.

    - `env`: the vector environment.
    - `bonus`: a `rnd.Bonus` for its number of environments.
    - `coef`: weight of the intrinsic reward in the sum.
    - `combine`: the reward that `step` returns: "sum" of both, "info": the extrinsic alone, or "only" the intrinsic.
    """

    def __init__(self, env: Any, bonus: Bonus, coef: float = 1.0, combine: Combine = "sum"):
        super().__init__(env)
        self._use(bonus, coef, combine, env.num_envs)
        self.mode = autoreset_mode(env)
        self._resets = np.zeros(env.num_envs, bool)
        """NEXT_STEP: the environments that the next step resets."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.bonus.reset_episodes((options or {}).get("reset_mask"))  # first: environments pop it
        obs, infos = self.env.reset(seed=seed, options=options)
        self._resets[:] = False
        self._remember(obs)
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        ended, next_obs, valid = np.asarray(terminated) | np.asarray(truncated), obs, None
        if self.mode == "SAME_STEP" and ended.any():
            final = infos.get("final_obs", infos.get("final_observation"))
            next_obs = replace_rows(obs, {i: row_of(final, i) for i in np.flatnonzero(ended).tolist()})
        if self.mode == "NEXT_STEP":
            valid = ~self._resets if self._resets.any() else None
            self._resets = ended & ~self._resets
        intrinsic = self.bonus.observe(next_obs, self._obs, actions, valid, ended)
        self._remember(obs)
        for key, value in zip(KEYS, (np.asarray(reward), intrinsic), strict=True):
            infos[key], infos[f"_{key}"] = value, np.ones(len(ended), bool)
        return obs, self._combined(reward, intrinsic), terminated, truncated, infos


class IntrinsicRewardEnv(IntrinsicRewardMixin, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """The same for one environment.

    - `env`: the environment.
    - `bonus`: a `rnd.Bonus` with `num_envs=1`.
    - `coef`, `combine`: as in `IntrinsicReward`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], bonus: Bonus, coef: float = 1.0, combine: Combine = "sum"):
        RecordConstructorArgs.__init__(self, bonus=bonus, coef=coef, combine=combine)
        gymnasium.Wrapper.__init__(self, env)
        self._use(bonus, coef, combine, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.bonus.reset_episodes()
        self._obs = batch_of_one(obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        next_obs = batch_of_one(obs)
        done = np.array([terminated or truncated])
        intrinsic = float(self.bonus.observe(next_obs, self._obs, np.asarray(action)[None], done=done)[0])
        self._obs = next_obs
        info |= dict(zip(KEYS, (float(reward), intrinsic), strict=True))
        return obs, float(self._combined(float(reward), intrinsic)), terminated, truncated, info


def batch_of_one(obs: Any) -> Any:
    """A copy of an observation, with a leading axis."""
    if isinstance(obs, dict):
        return {name: batch_of_one(part) for name, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(batch_of_one(part) for part in obs)
    return np.array(obs)[None]
