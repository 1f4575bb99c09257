"""A small policy for vector observations: two fully connected layers."""

from __future__ import annotations

from dataclasses import dataclass

from rnd.config import PolicyOptions, state_field
from rnd.config.ranges import Width
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.policy.base import ActorCritic, vector_torso


@dataclass(frozen=True)
class WidthOptions(PolicyOptions):
    """A policy that reads vectors."""

    width: Width = state_field(64, "policy width")
    """Width of the fully connected layers for vector observations."""


class MLP(ActorCritic):
    """Reads vectors; no memory."""

    Options = WidthOptions
    reads = ("vector",)

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: WidthOptions):
        super().__init__(vector_torso(observation.shape[0], options.width), options.width, action, image=False)
