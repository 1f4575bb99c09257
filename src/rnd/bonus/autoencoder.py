"""Reconstruction error of an autoencoder (appendix, Figure 8): RND's closest relative, deterministic as well."""

from __future__ import annotations

from torch import Tensor

from rnd.bonus.prediction import PredictionBonus
from rnd.config import BonusConfig
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.networks import autoencoder_network
from rnd.transitions import Transitions


class Autoencoder(PredictionBonus):
    """i_t = mean over pixels of (decoder(encoder(s_{t+1})) - s_{t+1})^2, on the whitened newest frame."""

    answers_once = False  # the answer is the frame itself: whitening it again is free, a rollout in float32 is not

    def __init__(self, observation: ObservationSpec, action: ActionSpec, config: BonusConfig):
        super().__init__(observation, config)
        self.network = autoencoder_network(observation, config.features, config.hidden)

    def guess(self, transitions: Transitions) -> Tensor:
        frames: Tensor = self.network(self.newest(transitions))
        return frames

    def answer(self, transitions: Transitions) -> Tensor:
        return self.newest(transitions)
