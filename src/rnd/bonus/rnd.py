"""Random network distillation (section 2.2): the error in predicting a random network's features of s_{t+1}."""

from __future__ import annotations

import torch
from torch import Tensor

from rnd.bonus.contract import Bonus, kept
from rnd.config import BonusConfig
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.networks import predictor_network, target_network
from rnd.normalize import Whitener
from rnd.transitions import Transitions


class RND(Bonus):
    """i_t = mean over k of (predictor(s_{t+1}) - target(s_{t+1}))^2, on the whitened newest frame."""

    def __init__(self, observation: ObservationSpec, action: ActionSpec, config: BonusConfig):
        super().__init__()
        self.whiten = Whitener(observation.shape, config.clip)
        self.target = target_network(observation, config.features, config.hidden)
        self.predictor = predictor_network(observation, config.features, config.hidden)
        self.channel = observation.kind == "image"

    def observe(self, next_obs: Tensor) -> None:
        self.whiten.update(next_obs)

    @torch.no_grad()
    def score(self, transitions: Transitions) -> Tensor:
        inputs = self.inputs(transitions.next_obs.flatten(0, 1))
        error_B: Tensor = (self.predictor(inputs) - self.target(inputs)).square().mean(-1)
        return error_B.view(transitions.actions.shape[:2])

    @torch.no_grad()
    def targets(self, transitions: Transitions) -> Tensor:
        features: Tensor = self.target(self.inputs(transitions.next_obs.flatten(0, 1)))
        return features.view(*transitions.actions.shape[:2], -1)

    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        index_C, weight_C = kept(keep_TN, share)
        inputs = self.inputs(transitions.next_obs.flatten(0, 1)[index_C])
        error_C: Tensor = (self.predictor(inputs) - targets.flatten(0, 1)[index_C]).square().mean(-1)
        return (error_C * weight_C).sum()

    def inputs(self, next_obs_BX: Tensor) -> Tensor:
        whitened: Tensor = self.whiten(next_obs_BX)
        return whitened.unsqueeze(1) if self.channel else whitened
