"""What a policy network is, and the heads that those of the paper share.

Legend: B any leading shape, T steps, N environments, H hidden size, X the shape of one observation.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rnd.config import PolicyOptions
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.envs.spec import STACK, ActionSpec, ObservationSpec
from rnd.models.actions import logits_size
from rnd.models.networks import AtariTorso, Joined, linear, map_linear, pixels, torso_size


class PolicyOutput(NamedTuple):
    """Action logits and one value per stream."""

    logits: Tensor
    value_ext: Tensor
    value_int: Tensor


class Policy(nn.Module):
    """A policy network with two value heads, constructed as `cls(observation, action, options)`."""

    Options: type[PolicyOptions] = PolicyOptions
    """The dataclass of its own options."""
    reads: tuple[str, ...] = ("image", "vector")
    """Kinds of observations, of "image", "vector" and "mixed": images and a vector in one row (docs/own-network.md)."""
    compilable = True
    """torch.compile may fuse `forward` and `unroll`."""
    hidden_size = 0
    """Size of the recurrent state; 0 without memory."""

    def update_statistics(self, obs: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        """Update statistics of the observations, where there are any, with observations [..., X] of all ranks."""

    @abstractmethod
    def forward(self, obs_BX: Tensor, hidden_BH: Tensor) -> tuple[PolicyOutput, Tensor]:
        """One step: outputs, and the new hidden state, [B, 0] for a policy without memory."""

    @abstractmethod
    def unroll(self, obs_TNX: Tensor, hidden_NH: Tensor, first_TN: Tensor) -> PolicyOutput:
        """T steps from the hidden state before them; the state is zeroed where an episode starts."""


class Residual(nn.Module):
    """x + ReLU(fc(x))."""

    def __init__(self, width: int):
        super().__init__()
        self.fc = linear(width, width, gain=0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.fc(x))


class ActorCritic(Policy):
    """Torso, an optional recurrent cell, one residual branch each for the policy and for the values, and the heads.

    Subclasses call `__init__` with their torso. The order of construction is the order of the random draws.
    """

    def __init__(self, torso: nn.Module, size: int, action: ActionSpec, image: bool, gru: nn.Module | None = None):
        super().__init__()
        self.image, self.torso, self.gru = image, torso, gru
        self.reads_uint8 = isinstance(next(torso.children(), None), AtariTorso)
        self.policy_branch, self.value_branch = Residual(size), Residual(size)
        continuous = action.kind == "continuous"
        self.logits = linear(size, action.sizes[0] if continuous else logits_size(action), gain=0.01)
        self.log_std = nn.Parameter(torch.zeros(action.sizes[0])) if continuous else None
        self.value_int, self.value_ext = linear(size, 1, gain=0.01), linear(size, 1, gain=0.01)

    def forward(self, obs_BX: Tensor, hidden_BH: Tensor) -> tuple[PolicyOutput, Tensor]:
        return self.heads(self.features(obs_BX)), hidden_BH

    def unroll(self, obs_TNX: Tensor, hidden_NH: Tensor, first_TN: Tensor) -> PolicyOutput:
        return self.heads_over_time(self.features(obs_TNX.flatten(0, 1)), *obs_TNX.shape[:2])

    def features(self, obs_BX: Tensor) -> Tensor:
        if self.image and not self.reads_uint8:
            obs_BX = pixels(obs_BX)
        features: Tensor = self.torso(obs_BX)
        return features

    def heads(self, features: Tensor) -> PolicyOutput:
        policy, value = self.policy_branch(features), self.value_branch(features)
        logits = self.logits(policy)
        if self.log_std is not None:
            logits = torch.cat([logits, self.log_std.expand_as(logits)], dim=-1)
        return PolicyOutput(logits, self.value_ext(value).squeeze(-1), self.value_int(value).squeeze(-1))

    def heads_over_time(self, features: Tensor, steps: int, envs: int) -> PolicyOutput:
        return PolicyOutput(*(x.view(steps, envs, *x.shape[1:]) for x in self.heads(features)))


def image_layers(kernel: int, images: int = 1) -> list[nn.Module]:
    """Three convolutions over stacked frames, and 256 features."""
    return [AtariTorso(STACK * images, kernel, nn.ReLU), map_linear(torso_size(kernel), 256), nn.ReLU()]


def mixed_layers(observation: ObservationSpec, kernel: int, width: int, features: int) -> list[nn.Module]:
    """The features of images and of a vector side by side, and a layer that joins them."""
    image, size = nn.Sequential(*image_layers(kernel, observation.images)), observation.vector_size
    vector = vector_torso(size, width) if size else None
    inputs = 256 + (width if size else 0)
    return [Joined(observation, image, vector), linear(inputs, features), nn.ReLU()]


def vector_torso(inputs: int, width: int) -> nn.Module:
    return nn.Sequential(linear(inputs, width), nn.ReLU(), linear(width, width), nn.ReLU())
