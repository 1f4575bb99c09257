"""Reconstruction error of an autoencoder (appendix, Figure 8): RND's closest relative, deterministic as well."""

from __future__ import annotations

from torch import Tensor

from rnd.bonus.prediction import PredictionBonus
from rnd.config import BonusOptions
from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.networks import autoencoder_network


class Autoencoder(PredictionBonus):
    """i_t = mean over pixels of (decoder(encoder(s_{t+1})) - s_{t+1})^2, on the whitened newest frame."""

    cache_targets = False  # the target is the frame itself: whitening it again is cheap, a rollout in float32 is not

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: BonusOptions):
        super().__init__(observation, options)
        self.network = autoencoder_network(observation, options.features, options.hidden)

    def predict(self, transitions: Transitions) -> Tensor:
        frames: Tensor = self.network(self.newest(transitions))
        return frames

    def target_of(self, transitions: Transitions) -> Tensor:
        return self.newest(transitions)
