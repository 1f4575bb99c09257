"""Distributional RND (Yang et al. 2024): N random targets, and a pseudo-count from their first two moments.

Legend: T steps, N environments, B = T·N transitions, C kept ones, M targets, S samples per target, k features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rnd.bonus.base import kept
from rnd.bonus.prediction import squared_error
from rnd.bonus.rnd import RND
from rnd.config import BonusOptions, state_field
from rnd.config.ranges import Fraction, PositiveInt
from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.networks import target_network

MIN_VARIANCE = 1e-8
"""Lower bound of the targets' variance, which is 0 where all targets agree."""


class DRND(RND):
    """i_t = alpha |f - mu|^2 + (1 - alpha) sqrt((f^2 - mu^2) / (B2 - mu^2)) of s_{t+1}, where f is the prediction, and
    mu and B2 are the mean and the mean square of the targets' features. The predictor learns one target at a time."""

    @dataclass(frozen=True)
    class Options(BonusOptions):
        """Distributional RND."""

        targets: PositiveInt = state_field(10, "number of targets")
        """Random target networks."""
        alpha: Fraction = 0.9
        """Weight of the distance to the targets' mean; the rest is the weight of the pseudo-count."""

    cache_targets = False  # which target a sample learns is drawn anew in every epoch

    target: nn.ModuleList

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        super().__init__(observation, action, options)
        self.alpha = options.alpha
        more = [target_network(observation, options.features, options.hidden) for _ in range(options.targets - 1)]
        self.target = nn.ModuleList([self.target, *more])

    @torch.no_grad()
    def score(self, transitions: Transitions) -> Tensor:
        obs = self.newest(transitions)
        prediction_Bk = self.predictor(obs).float()
        mean_Bk, square_Bk = torch.zeros_like(prediction_Bk), torch.zeros_like(prediction_Bk)
        for target in self.target:
            features_Bk = target(obs).float() / len(self.target)
            mean_Bk, square_Bk = mean_Bk + features_Bk, square_Bk + features_Bk.square() * len(self.target)
        return drnd_bonus(prediction_Bk, mean_Bk, square_Bk, self.alpha).view(transitions.actions.shape[:2])

    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        assert transitions.draw is not None, "an update gives random numbers"
        index_C, weight_C = kept(keep_TN, share)
        chosen_MS, used_MS = random_groups(transitions.draw.flatten()[index_C], weight_C, len(self.target))
        obs = self.newest(transitions.pick(index_C[chosen_MS.flatten()]))
        with torch.no_grad():
            parts = obs.unflatten(0, chosen_MS.shape).unbind()
            target_Bk = torch.cat([target(part) for target, part in zip(self.target, parts, strict=True)])
        weight_B = (weight_C[chosen_MS] * used_MS).flatten()
        return (squared_error(self.predictor(obs), target_Bk) * weight_B).sum()


def drnd_bonus(prediction_Bk: Tensor, mean_Bk: Tensor, square_Bk: Tensor, alpha: float) -> Tensor:
    """The paper's two bonuses, weighted. Each feature estimates 1/n, which is between 0 and 1."""
    variance_Bk = (square_Bk - mean_Bk.square()).clamp_min(MIN_VARIANCE)
    inverse_count_Bk = ((prediction_Bk.square() - mean_Bk.square()).abs() / variance_Bk).clamp_max(1)
    distance_B = (prediction_Bk - mean_Bk).square().sum(1)
    return alpha * distance_B + (1 - alpha) * inverse_count_Bk.sqrt().mean(1)


def random_groups(draw_C: Tensor, weight_C: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Splits the samples whose weight is not 0 into M random groups of nearly equal size. Returns their indices [M, S],
    and a mask of the entries in use: S is fixed, and groups may be smaller."""
    order_C = torch.where(weight_C > 0, draw_C, 2.0).argsort(stable=True)
    start = torch.arange(groups + 1, device=draw_C.device) * (weight_C > 0).sum() // groups
    rank_MS = start[:-1, None] + torch.arange(-(-len(draw_C) // groups), device=draw_C.device)
    return order_C[rank_MS.clamp_max(len(draw_C) - 1)], rank_MS < start[1:, None]
