"""Reconstruction error of an autoencoder (appendix, Figure 8): RND's closest relative, deterministic as well."""

from __future__ import annotations

import torch
from torch import Tensor

from rnd.bonus.prediction import PredictionBonus
from rnd.config import BonusOptions
from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.networks import autoencoder_network


class Autoencoder(PredictionBonus):
    """i_t = mean over pixels of (decoder(encoder(s_{t+1})) - s_{t+1})^2, on the whitened newest frame. Of images with a
    vector both are reconstructed, and the means over pixels and over components are averaged."""

    weights: Tensor | None
    cache_targets = False  # the target is the frame itself: whitening it again is cheap, a rollout in float32 is not

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: BonusOptions):
        super().__init__(observation, options)
        self.network = autoencoder_network(observation, options.features, options.hidden)
        weights = part_weights(observation) if observation.kind == "mixed" else None
        self.register_buffer("weights", weights, persistent=False)

    def predict(self, transitions: Transitions) -> Tensor:
        return self.weighted(self.network(self.newest(transitions)))

    def target_of(self, transitions: Transitions) -> Tensor:
        return self.weighted(self.newest(transitions))

    def weighted(self, values: Tensor) -> Tensor:
        """Factors before the squared error, whose mean then counts images and vector alike."""
        return values if self.weights is None else values * self.weights


def part_weights(observation: ObservationSpec) -> Tensor:
    """Their squares add up to the same over pixels and over components, and to 1 on average."""
    sizes = [size for size in (observation.pixels, observation.vector_size) if size]
    return torch.cat([torch.full((size,), (sum(sizes) / len(sizes) / size) ** 0.5) for size in sizes])
