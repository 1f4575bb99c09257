"""Random network distillation (section 2.2): the error in predicting a random network's features of s_{t+1}."""

from __future__ import annotations

import torch
from torch import Tensor

from rnd.bonus.prediction import PredictionBonus, squared_error
from rnd.config import BonusOptions
from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.networks import predictor_network, target_network


class RND(PredictionBonus):
    """i_t = mean over k of (predictor(s_{t+1}) - target(s_{t+1}))^2, on the whitened newest frame."""

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: BonusOptions):
        super().__init__(observation, options)
        self.target = target_network(observation, options.features, options.hidden)
        self.predictor = predictor_network(observation, options.features, options.hidden)

    @torch.no_grad()
    def score(self, transitions: Transitions) -> Tensor:
        obs = self.newest(transitions)  # whitened once for both networks
        return squared_error(self.predictor(obs), self.target(obs)).view(transitions.actions.shape[:2])
