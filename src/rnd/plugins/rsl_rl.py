"""The bonus for rsl_rl's PPO: in place of its own RND extension, with the same keys where they mean the same.

    train_cfg["algorithm"]["class_name"] = "rnd.plugins.rsl_rl:PPO"
    train_cfg["algorithm"]["rnd_cfg"] = {"weight": 1.0}
    OnPolicyRunner(env, train_cfg, log_dir, device).learn(1000)

Observations are whitened and the reward is divided by the std of its return, as in the paper. Tensors stay on the
device, and the host does not wait for it. docs/plugins.md compares it with rsl_rl's own.

Legend: N environments, B samples, X the shape of one observation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rnd.bonus.prediction import squared_error
from rnd.bonus.rnd import RND
from rnd.config import BonusOptions
from rnd.data.normalize import ReturnScaler
from rnd.envs.spec import SCREEN, ActionSpec, ObservationSpec
from rnd.foundation.errors import UserError, nearest

try:
    from rsl_rl import algorithms
    from rsl_rl.utils import resolve_obs_groups
except ImportError as error:
    raise ImportError(f"rnd.plugins.rsl_rl needs rsl_rl ({error}): pip install rsl-rl-lib") from error

SCHEDULES = {
    "constant": (),
    "step": ("final_step", "final_value"),
    "linear": ("initial_step", "final_step", "final_value"),
}
"""Modes of `weight_schedule`, and keys that they need."""


class RandomNetworkDistillation(nn.Module):
    """rsl_rl's extension of the same name, as in the paper. Made from the first observations, a dictionary of groups.

    - `weight`, `weight_schedule`, `num_outputs`: as in rsl_rl. The step of a schedule is saved.
    - `learning_rate`: as in rsl_rl, but 1e-4, as in the paper, where it is not given. With rsl_rl's 1e-3 the predictor
      has learned the bonus away within a few iterations (docs/plugins.md).
    - `hidden`: width of the hidden layers for vectors. The predictor has two layers more than the target.
    - `gamma`: discount of the running sum by whose std the reward is divided.
    - `keep`: share of each minibatch that trains the predictor.

    Groups [N, X] are joined to one vector, groups [N, C, H, W] to the channels of one image; with both, the raw bonuses
    are added. Rewards are 0 until the first update: until then the statistics of observations are empty.
    """

    def __init__(
        self,
        obs: Any,
        obs_groups: dict[str, list[str]],
        *,
        num_envs: int,
        weight: float = 0.0,
        weight_schedule: dict[str, Any] | None = None,
        learning_rate: float = 1e-4,
        num_outputs: int = 64,
        hidden: int = 256,
        gamma: float = 0.99,
        keep: float = 1.0,
        state_normalization: bool = True,
        reward_normalization: bool = True,
        device: Any = "cpu",
    ):
        super().__init__()
        if not (state_normalization and reward_normalization):
            raise UserError("rnd_cfg: this bonus is always normalised, as in the paper; leave out both normalizations")
        self.groups, self.initial_weight, self.keep = obs_groups["rnd_state"], weight, keep
        self.schedule = checked_schedule(weight_schedule)
        self.steps = 0
        """Steps of every environment in this run."""
        self.started = False
        """The statistics of observations have seen a rollout."""
        options, any_action = BonusOptions(features=num_outputs, hidden=hidden), ActionSpec("discrete", (1,))
        self.bonuses: Any = nn.ModuleDict()
        for kind, encoded in self._encode(obs).items():
            spec = ObservationSpec("image" if kind == "image" else "vector", tuple(encoded.shape[1:]))
            self.bonuses[kind] = RND(spec, any_action, options)
        self.scaler = ReturnScaler(num_envs, gamma)
        self.to(device)
        self.optimizer = torch.optim.Adam(self.predictor.parameters(), lr=learning_rate)

    @property
    def predictor(self) -> nn.ModuleList:
        return nn.ModuleList([bonus.predictor for bonus in self.bonuses.values()])

    @property
    def target(self) -> nn.ModuleList:
        return nn.ModuleList([bonus.target for bonus in self.bonuses.values()])

    @property
    def weight(self) -> float:
        """At the current step of the schedule."""
        return scheduled(self.initial_weight, self.schedule, self.steps)

    @torch.inference_mode(False)
    @torch.no_grad()
    def get_intrinsic_reward(self, obs: Any) -> Tensor:
        """Weighted intrinsic reward [N] of the observations after a step. Advances the schedule and the scale."""
        self.steps += 1
        encoded = self._encode(obs)
        if not self.started:
            return torch.zeros(len(next(iter(encoded.values()))), device=self.scaler.carry_N.device)
        raw_N = torch.stack([self._error(kind, x) for kind, x in encoded.items()]).sum(0)
        scaled: Tensor = self.scaler(raw_N[None])[0]
        return scaled * self.weight

    def compute_loss(self, obs: Any) -> Tensor:
        """Mean error of the predictor. rsl_rl has shuffled the minibatch: its first samples are a random share."""
        losses = []
        for kind, encoded in self._encode(obs).items():
            part = encoded[: max(1, int(len(encoded) * self.keep))]
            losses.append(self._error(kind, part).mean())
        return torch.stack(losses).sum()

    @torch.inference_mode(False)
    @torch.no_grad()
    def update_statistics(self, obs: Any) -> None:
        """Add the observations of a rollout. Called before the update, so that the predictor learns with the new
        statistics, as in the paper."""
        self.started = True
        for kind, encoded in self._encode(obs).items():
            self.bonuses[kind].update_statistics(encoded)

    def update_normalization(self, obs: Any) -> None:
        """rsl_rl calls this after its update; `update_statistics` came before."""

    def get_extra_state(self) -> dict[str, Any]:
        return {"steps": self.steps, "started": self.started}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.steps, self.started = int(state["steps"]), bool(state["started"])

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """With another number of environments their sums start from the mean of the saved ones."""
        state, sums = dict(state_dict), state_dict["scaler.carry_N"]
        if len(sums) != len(self.scaler.carry_N):
            state["scaler.carry_N"] = sums.mean().expand(len(self.scaler.carry_N))
        return super().load_state_dict(state, strict, assign)

    def _error(self, kind: str, encoded: Tensor) -> Tensor:
        bonus = self.bonuses[kind]
        whitened = bonus.whitened(encoded[None])
        return squared_error(bonus.predictor(whitened), bonus.target(whitened))

    def _encode(self, obs: Any) -> dict[str, Tensor]:
        """What the networks read: a vector [B, X], a grey image [B, 84, 84], or both."""
        groups = [obs[name] for name in self.groups]
        vectors, images = ([x for x in groups if (x.dim() == 4) == image] for image in (False, True))
        found = {}
        if vectors:
            found["vector"] = torch.cat([x.flatten(1).float() for x in vectors], dim=-1).clone()
        if images:
            grey = [F.interpolate(x.float(), (SCREEN, SCREEN), mode="area").mean(1) for x in images]
            found["image"] = torch.stack(grey).mean(0)
        return found


class PPO(algorithms.PPO):
    """rsl_rl's PPO with this bonus. Everything else is rsl_rl's own: one value head, rewards added."""

    @staticmethod
    def construct_algorithm(obs: Any, env: Any, cfg: dict[str, Any], device: str) -> PPO:
        rnd_cfg = cfg["algorithm"].get("rnd_cfg")
        if rnd_cfg is not None:
            cfg["obs_groups"] = resolve_obs_groups(obs, cfg["obs_groups"], ["actor", "critic", "rnd_state"])
        # rsl_rl would make its own extension, which refuses images
        without = {**cfg, "algorithm": {**cfg["algorithm"], "rnd_cfg": None}}
        alg: PPO = algorithms.PPO.construct_algorithm(obs, env, without, device)
        cfg["obs_groups"] = without["obs_groups"]
        if rnd_cfg is not None:
            alg.rnd = make_extension(rnd_cfg, obs, cfg["obs_groups"], env, alg.gamma, device)
        return alg

    def update(self) -> dict[str, float]:
        if self.rnd:
            self.rnd.update_statistics(self.storage.observations.flatten(0, 1))
        losses: dict[str, float] = super().update()
        return losses


def make_extension(
    cfg: dict[str, Any], obs: Any, obs_groups: dict[str, list[str]], env: Any, gamma: float, device: str
) -> RandomNetworkDistillation:
    """From rsl_rl's `rnd_cfg`. As there, the weight is per second where the environment has a time step."""
    known = {"weight", "weight_schedule", "learning_rate", "num_outputs", "hidden", "gamma", "keep"}
    known |= {"state_normalization", "reward_normalization"}
    for name in cfg.keys() - known:
        hint = "the predictor has two layers more than the target; hidden is their width"
        raise UserError(f"rnd_cfg has no {name} here ({hint}); {nearest(name, known)}")
    weight = cfg.get("weight", 0.0) * getattr(getattr(env, "unwrapped", env), "step_dt", 1.0)
    given = {"gamma": gamma} | cfg | {"weight": weight}
    return RandomNetworkDistillation(obs, obs_groups, num_envs=env.num_envs, device=device, **given)


def checked_schedule(schedule: dict[str, Any] | None) -> dict[str, Any]:
    schedule = schedule or {"mode": "constant"}
    if schedule["mode"] not in SCHEDULES:
        raise UserError(f"unknown weight_schedule {schedule['mode']!r}; {nearest(schedule['mode'], SCHEDULES)}")
    for name in SCHEDULES[schedule["mode"]]:
        if name not in schedule:
            raise UserError(f"the weight_schedule {schedule['mode']} needs {name}")
    return schedule


def scheduled(initial: float, schedule: dict[str, Any], step: int) -> float:
    """The weight at a step."""
    if schedule["mode"] == "constant":
        return initial
    first, last, final = (float(schedule.get(name, 0)) for name in ("initial_step", "final_step", "final_value"))
    if schedule["mode"] == "step":
        return initial if step < last else final
    share = min(max((step - first) / (last - first), 0.0), 1.0)
    return initial + (final - initial) * share
