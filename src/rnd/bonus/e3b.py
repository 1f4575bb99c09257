"""E3B (Henaff, Raileanu, Jiang and Rocktäschel 2022): how far s_{t+1} lies outside of its episode's ellipse.

Legend: T steps, N environments, B = T·N transitions, C kept ones, k features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rnd.bonus.base import BonusModule, EpisodeBonus, kept
from rnd.config import BonusOptions, state_field
from rnd.config.ranges import PositiveFloat, Width
from rnd.data.normalize import make_whitener
from rnd.data.transitions import Transitions
from rnd.distributed import SINGLE_PROCESS, Ranks, check_keys, reshard_rows
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models import actions as act
from rnd.models.networks import encoder, linear, map_linear


class E3B(BonusModule):
    """i_t = phi^T C^-1 phi of phi = phi(s_{t+1}), where C = ridge I + the sum of phi phi^T over the earlier states of
    its episode. phi is trained to tell the action: -log p(a_t | phi(s_t), phi(s_{t+1})); of continuous actions, p is a
    normal distribution of variance 1/2, so that this is the squared error."""

    @dataclass(frozen=True)
    class Options(BonusOptions):
        """E3B."""

        features: Width = state_field(128, "bonus features")
        """Outputs of the encoder (k). Every environment has a matrix of k x k."""
        ridge: PositiveFloat = 0.1
        """Weight of the identity in the covariance of an episode."""

    capturable = True
    reads_action = True

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        super().__init__()
        self.action, self.ridge, self.features = action, options.ridge, options.features
        self.image = observation.kind == "image"
        self.whiten = make_whitener(observation, options.clip)
        torso, size = encoder(observation, options.hidden)
        self.encoder = nn.Sequential(torso, map_linear(size, options.features))
        hidden, outputs = options.hidden, sum(action.sizes)
        self.inverse = nn.Sequential(linear(2 * options.features, hidden), nn.ReLU(), linear(hidden, outputs, 0.01))

    def episode_bonus(self, num_envs: int) -> EpisodeEllipses:
        return EpisodeEllipses(num_envs, self.features, self.ridge)

    def update_statistics(self, next_obs: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        self.whiten.update(next_obs, ranks)

    @torch.no_grad()
    def embed(self, transitions: Transitions) -> Tensor:
        return self._features(transitions.next_obs).float().view(*transitions.actions.shape[:2], -1)

    @torch.no_grad()
    def score(self, transitions: Transitions) -> Tensor:
        """The bonus of an episode's first state: single transitions have no earlier ones."""
        return self.embed(transitions).square().sum(-1) / self.ridge

    def trains_on(self, transitions: Transitions, keep_TN: Tensor) -> Tensor:
        """Not on ends: there s_{t+1} is the first state of the next episode, and says nothing about the action."""
        return keep_TN if transitions.done is None else keep_TN & ~transitions.done

    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        index_C, weight_C = kept(self.trains_on(transitions, keep_TN), share)
        picked = transitions.pick(index_C)
        before_Ck, after_Ck = (self._features(frames[None]) for frames in picked.newest)
        output_CA = self.inverse(torch.cat([before_Ck, after_Ck], dim=-1)).float()
        return (inverse_loss(self.action, output_CA, picked.actions[0]) * weight_C).sum()

    def _features(self, obs: Tensor) -> Tensor:
        """[B, k] of single observations [T, N, X]. Their mean square is below 1: the inverse of a covariance with
        far larger entries than the ridge cannot be updated in float32."""
        whitened: Tensor = self.whiten(obs.flatten(0, 1))
        features: Tensor = self.encoder(whitened.unsqueeze(1) if self.image else whitened)
        return features / (1 + features.square().mean(-1, keepdim=True)).sqrt()


class EpisodeEllipses(EpisodeBonus):
    """The inverse covariance of the features of every environment's episode, updated by Sherman and Morrison's formula.

    All shapes are fixed, and the host does not wait for the device.
    """

    inverse_Nkk: Tensor

    def __init__(self, num_envs: int, features: int, ridge: float):
        super().__init__()
        self.ridge = ridge
        self.register_buffer("inverse_Nkk", torch.eye(features).div(ridge).repeat(num_envs, 1, 1))

    @torch.no_grad()
    def forward(self, features_TNk: Tensor, first_TN: Tensor, start_TNk: Tensor | None = None) -> Tensor:
        """See `EpisodeBonus`. Features of 0 change nothing."""
        inverse_Nkk = self.inverse_Nkk
        empty_kk = torch.eye(inverse_Nkk.shape[1], device=inverse_Nkk.device) / self.ridge
        bonus_TN = torch.empty_like(features_TNk[..., 0])
        for t, first_N in enumerate(first_TN):
            inverse_Nkk = torch.where(first_N[:, None, None], empty_kk, inverse_Nkk)
            if start_TNk is not None:
                inverse_Nkk, _ = add_state(inverse_Nkk, start_TNk[t] * first_N[:, None])
            inverse_Nkk, bonus_TN[t] = add_state(inverse_Nkk, features_TNk[t])
        self.inverse_Nkk.copy_(inverse_Nkk)
        return bonus_TN

    @staticmethod
    def reshard(states: list[dict[str, Any]], world: int) -> list[dict[str, Any]]:
        check_keys(states[0], ("inverse_Nkk",), "the episodes' ellipses")
        return [{"inverse_Nkk": rows} for rows in reshard_rows([state["inverse_Nkk"] for state in states], world)]


def add_state(inverse_Nkk: Tensor, features_Nk: Tensor) -> tuple[Tensor, Tensor]:
    """(C + phi phi^T)^-1 from C^-1, and phi^T C^-1 phi, which rounding may not make negative."""
    solved_Nk = torch.bmm(inverse_Nkk, features_Nk[..., None])[..., 0]
    bonus_N = (solved_Nk * features_Nk).sum(-1).clamp_min(0)
    scaled_Nk = solved_Nk / (1 + bonus_N)[:, None].sqrt()  # its outer product is symmetric to the bit
    return inverse_Nkk - scaled_Nk[:, :, None] * scaled_Nk[:, None, :], bonus_N


def inverse_loss(action: ActionSpec, output_CA: Tensor, actions_CK: Tensor) -> Tensor:
    """-log p of the actions [C] by the outputs of the inverse model; the mean squared error of continuous ones."""
    if action.kind == "continuous":
        return (output_CA - actions_CK).square().mean(-1)
    return -act.log_prob(action, output_CA, actions_CK)
