"""Prediction errors as bonuses: what all bonuses with a predictor share.

Legend: B = T·N transitions of T steps and N environments, C kept ones, k features, F the shape of a target.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rnd.bonus.base import BonusModule, kept
from rnd.config import BonusOptions
from rnd.data.normalize import make_whitener
from rnd.data.transitions import Transitions
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.envs.spec import ObservationSpec


class PredictionBonus(BonusModule):
    """i_t = mean squared error of a trained prediction of a fixed target, on whitened observations.

    Unless a subclass says otherwise, a network `predictor` imitates a network `target`, both of s_{t+1} alone.
    """

    predictor: nn.Module
    target: nn.Module

    capturable = True
    cache_targets = True
    """Keep the targets of a rollout during the epochs; False where computing them again costs less than the memory."""

    def __init__(self, observation: ObservationSpec, options: BonusOptions):
        super().__init__()
        self.image = observation.kind == "image"
        self.whiten = make_whitener(observation, options.clip)

    def predict(self, transitions: Transitions) -> Tensor:
        """Output of the trained network, [B, F]."""
        features: Tensor = self.predictor(self.newest(transitions))
        return features

    def target_of(self, transitions: Transitions) -> Tensor:
        """What it is trained to predict, [B, F]."""
        features: Tensor = self.target(self.newest(transitions))
        return features

    def update_statistics(self, next_obs: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        self.whiten.update(next_obs, ranks)

    @torch.no_grad()
    def score(self, transitions: Transitions) -> Tensor:
        error_B = squared_error(self.predict(transitions), self.target_of(transitions))
        return error_B.view(transitions.actions.shape[:2])

    @torch.no_grad()
    def targets(self, transitions: Transitions) -> Tensor:
        if not self.cache_targets:
            return super().targets(transitions)
        target_BF = self.target_of(transitions)
        return target_BF.view(*transitions.actions.shape[:2], *target_BF.shape[1:])

    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        index_C, weight_C = kept(keep_TN, share)
        picked = transitions.pick(index_C)
        target_CF = targets.flatten(0, 1)[index_C] if self.cache_targets else self.target_of(picked).detach()
        return (squared_error(self.predict(picked), target_CF) * weight_C).sum()

    def newest(self, transitions: Transitions) -> Tensor:
        """The whitened newest frame of s_{t+1}, [B, 1, 84, 84], or the whitened vector or row of both [B, X]."""
        return self.whitened(transitions.next_obs)

    def whitened(self, obs: Tensor) -> Tensor:
        """Single frames, vectors or rows of both [T, N, X] as the networks read them, with B = T·N."""
        whitened: Tensor = self.whiten(obs.flatten(0, 1))
        return whitened.unsqueeze(1) if self.image else whitened


def squared_error(prediction_BF: Tensor, target_BF: Tensor) -> Tensor:
    """Mean over all axes but the first. The paper sums; the return scaling divides the factor out."""
    return (prediction_BF.float() - target_BF.float()).square().flatten(1).mean(1)
