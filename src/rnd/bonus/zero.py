"""Predicting the constant zero function (section 2.2.2): RND with the target's output replaced by 0."""

from __future__ import annotations

from torch import Tensor

from rnd.bonus.prediction import PredictionBonus
from rnd.config import BonusOptions
from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.networks import predictor_network


class Zero(PredictionBonus):
    """i_t = mean over k of predictor(s_{t+1})^2: how far the predictor still is from the zero function."""

    cache_targets = False

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: BonusOptions):
        super().__init__(observation, options)
        self.features = options.features
        self.predictor = predictor_network(observation, options.features, options.hidden)

    def target_of(self, transitions: Transitions) -> Tensor:
        samples = transitions.actions.shape[0] * transitions.actions.shape[1]
        return self.whiten.moments.mean.new_zeros(samples, self.features).float()
