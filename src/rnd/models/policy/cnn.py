"""The paper's CNN policy (appendix): three convolutions and two fully connected layers of 256 and 448 units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from rnd.config import PolicyOptions, state_field
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.networks import linear
from rnd.models.policy.base import ActorCritic, image_layers, mixed_layers

VECTOR_WIDTH = 64
"""Width of the fully connected layers for a vector beside images."""


class CNN(ActorCritic):
    """Reads stacks of frames, and a vector beside them; no memory."""

    @dataclass(frozen=True)
    class Options(PolicyOptions):
        """The CNN policy."""

        kernel: Literal[3, 4] = state_field(4, "third convolution")
        """Third convolution: 4 x 4 as in the authors' release, or 3 x 3 as in the encoder that the paper cites."""

    reads = ("image", "mixed")

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        image = observation.kind == "image"
        if image:
            layers = [*image_layers(options.kernel), linear(256, 448), nn.ReLU()]
        else:
            layers = mixed_layers(observation, options.kernel, VECTOR_WIDTH, 448)
        super().__init__(nn.Sequential(*layers), 448, action, image)
