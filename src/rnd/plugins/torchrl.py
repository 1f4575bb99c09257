"""The bonus as a transform of TorchRL.

    bonus = rnd.Bonus("rnd", observation_space, num_envs=N, update_every=128)
    env = TransformedEnv(env, IntrinsicReward(bonus))        # writes ("next", "intrinsic_reward")

A `TransformedEnv` is in eval mode, so training is not a matter of modes here: the statistics advance unless the bonus
is frozen. docs/plugins.md has the recipe with two GAE modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from rnd.envs.spaces import nested
from rnd.foundation.errors import UserError, install
from rnd.plugins.bonus import Bonus
from rnd.plugins.reward import check_bonus

try:
    from tensordict import TensorDictBase
    from torchrl.data import Unbounded
    from torchrl.envs import Transform
except ImportError as error:
    raise ImportError(f"rnd.plugins.torchrl needs TorchRL: {install('torchrl')}") from error

NAMES: Sequence[Any] = ("observation", "pixels")
"""What TorchRL calls the observation of a Gymnasium environment."""
NOT_OBSERVED = ("reward", "done", "terminated", "truncated", "action")


class IntrinsicReward(Transform):
    """Writes the scaled intrinsic reward of every step. The reward of the environment stays as it is.

    As a transform of an environment it sees single steps, with N = the number of environments in its batch. Called on a
    batch [N, T] or [T] of a collector (`Collector(..., postproc=...)`, or by you) it sees whole rollouts, and is then
    the paper's agent to the bit. Use one of the two ways.

    - `bonus`: a `rnd.Bonus` for the number of environments.
    - `in_key`: the key of the observation, a name or a tuple of names. Without it "observation" is read, or "pixels",
      as TorchRL calls images, or else the only entry that has the shape of the bonus's observation space. With a
      dictionary space, the keys of the space are read instead.
    - `out_key`: where the intrinsic reward is written.
    """

    def __init__(self, bonus: Bonus, in_key: Any = None, out_key: Any = "intrinsic_reward"):
        super().__init__(in_keys=["observation" if in_key is None else in_key], out_keys=[out_key])
        check_bonus(bonus)
        self._names: Sequence[Any]
        self.bonus, self._names = bonus, NAMES if in_key is None else [in_key]

    def freeze(self, frozen: bool = True) -> None:
        """From now on (or until `freeze(False)`) the bonus does not change: for evaluation."""
        self.bonus.freeze(frozen)

    def save(self, path: str | Path) -> None:
        self.bonus.save(path)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        shape = next_tensordict.batch_size
        reward = self._observe(tensordict, next_tensordict, lambda x: x.reshape(-1, *x.shape[len(shape) :]))
        next_tensordict.set(self.out_keys[0], reward.reshape(*shape, 1))
        return next_tensordict

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        self.bonus.reset_episodes(None if tensordict is None else tensordict.get("_reset", None))
        return tensordict_reset

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A batch [N, T] or [T] of a collector."""
        single, following = tensordict.ndim == 1, tensordict["next"]
        time_first = (lambda x: x.unsqueeze(1)) if single else (lambda x: x.transpose(0, 1))
        reward_TN = self._observe(tensordict, following, time_first)
        following.set(self.out_keys[0], (reward_TN if single else reward_TN.T.unsqueeze(-1)).float())
        return tensordict

    def _observe(self, before: TensorDictBase, after: TensorDictBase, arrange: Any) -> Tensor:
        next_obs = self._observation(after, arrange)  # first: it finds the key, among fewer entries
        obs = self._observation(before, arrange) if self.bonus.reads_obs else None
        actions = arrange(self._action(before)) if self.bonus.reads_action else None
        done = arrange(after.get("done")) if self.bonus.reads_episodes else None
        reward: Tensor = self.bonus.observe(next_obs, obs, actions, done=done)
        return reward

    def _observation(self, tensordict: TensorDictBase, arrange: Any) -> Any:
        if isinstance(self.bonus.observation_space, spaces.Dict):
            keys = {path: path if len(path) > 1 else path[0] for path in self.bonus.encoder.observations.leaves}
            return nested({path: arrange(self._first(tensordict, (key,))) for path, key in keys.items()})
        return arrange(self._first(tensordict, self._names))

    def _first(self, tensordict: TensorDictBase, names: Sequence[Any]) -> Tensor:
        """The first of these entries that is there."""
        for name in names:
            found: Tensor | None = tensordict.get(name, None)
            if found is not None:
                return found
        fitting = self._fitting(tensordict) if names is NAMES else []
        if len(fitting) == 1:
            self._names = self.in_keys = [fitting[0]]
            return self._first(tensordict, self._names)
        keys = ", ".join(map(str, fitting or tensordict.keys()))
        wanted = " or ".join(repr(name) for name in names)
        several = f"IntrinsicReward finds several observations: {keys}" if fitting else ""
        none = f"IntrinsicReward finds no {wanted} among {keys}"
        raise UserError(f"{several or none}; name it: IntrinsicReward(bonus, in_key=...)")

    def _fitting(self, tensordict: TensorDictBase) -> list[Any]:
        """The entries that may be the observation: they have its shape."""
        shape, known = self.bonus.observation_space.shape, {*NOT_OBSERVED, *self.out_keys}
        entries = tensordict.items(include_nested=True, leaves_only=True)
        return [key for key, x in entries if key not in known and tuple(x.shape[tensordict.ndim :]) == shape]

    def _action(self, tensordict: TensorDictBase) -> Tensor:
        """TorchRL's discrete actions are one-hot by default."""
        action: Tensor = tensordict.get(self.parent.action_key if self.parent is not None else "action")
        discrete = isinstance(self.bonus.action_space, spaces.Discrete)
        return action.to(torch.uint8).argmax(-1) if discrete and action.ndim > tensordict.ndim else action

    def transform_reward_spec(self, reward_spec: Any) -> Any:
        reward_spec[self.out_keys[0]] = Unbounded(
            shape=(*reward_spec.shape, 1), device=reward_spec.device, dtype=torch.float32
        )
        return reward_spec

    def get_extra_state(self) -> dict[str, Any]:
        """The bonus is part of the transform's `state_dict`."""
        return self.bonus.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.bonus.load_state_dict(state)
