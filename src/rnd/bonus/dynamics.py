"""Forward dynamics in random feature space (section 3.6): the paper's baseline, which a noisy TV attracts."""

from __future__ import annotations

from torch import Tensor

from rnd.bonus.prediction import PredictionBonus
from rnd.config import BonusOptions
from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.actions import encode
from rnd.models.networks import ActionPredictor, target_network


class Dynamics(PredictionBonus):
    """i_t = mean over k of (predictor(s_t, a_t) - target(s_{t+1}))^2.

    s_t is the stack of four frames, each whitened as the target's frame is. Frames before the episode's start are black
    to the policy and are whitened as black frames here.
    """

    reads_action = True

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: BonusOptions):
        super().__init__(observation, options)
        self.action = action
        self.target = target_network(observation, options.features, options.hidden)
        self.predictor = ActionPredictor(observation, action, options.features, options.hidden)

    def predict(self, transitions: Transitions) -> Tensor:
        actions_BA = encode(self.action, transitions.actions.flatten(0, 1))
        features: Tensor = self.predictor(self.whiten(transitions.obs.flatten(0, 1)), actions_BA)
        return features
