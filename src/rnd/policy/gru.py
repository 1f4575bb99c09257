"""The paper's recurrent policy (appendix): the CNN's 256 features, or a vector's, through a GRU cell.

Legend: T steps, N environments, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rnd.config import state
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.policy.base import ActorCritic, PolicyOutput, image_layers, vector_torso
from rnd.policy.mlp import WidthOptions


class GRU(ActorCritic):
    """Reads images and vectors; its hidden state is zeroed at every episode's start."""

    @dataclass(frozen=True)
    class Options(WidthOptions):
        """The recurrent policy."""

        kernel: Literal[3, 4] = state(4, "third convolution")
        """Third convolution: 4 x 4 as in the authors' release, or 3 x 3 as in the encoder that the paper cites."""

    compilable = False  # the unrolled loop would take minutes to compile, and is captured as a graph anyway
    gru: nn.GRUCell

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        image = observation.kind == "image"
        size = 256 if image else options.width
        vector = observation.shape[0], options.width
        torso = nn.Sequential(*image_layers(options.kernel)) if image else vector_torso(*vector)
        super().__init__(torso, size, action, image, gru_cell(size))
        self.hidden_size = size

    def forward(self, obs_BX: Tensor, hidden_BH: Tensor) -> tuple[PolicyOutput, Tensor]:
        hidden_BH = self.gru(self.features(obs_BX), hidden_BH)
        return self.heads(hidden_BH), hidden_BH

    def unroll(self, obs_TNX: Tensor, hidden_NH: Tensor, first_TN: Tensor) -> PolicyOutput:
        steps, envs = obs_TNX.shape[:2]
        features = self.features(obs_TNX.flatten(0, 1))
        keep_TN1 = (~first_TN).to(features.dtype).unsqueeze(-1)
        states = []
        for x_NH, keep_N1 in zip(features.view(steps, envs, -1), keep_TN1, strict=True):
            hidden_NH = self.gru(x_NH, hidden_NH * keep_N1)
            states.append(hidden_NH)
        return self.heads_over_time(torch.stack(states).flatten(0, 1), steps, envs)


def gru_cell(size: int) -> nn.GRUCell:
    """Orthogonal weights per gate, zero biases."""
    cell = nn.GRUCell(size, size)
    for weight in (cell.weight_ih, cell.weight_hh):
        for gate in weight.chunk(3):
            nn.init.orthogonal_(gate)
    nn.init.zeros_(cell.bias_ih)
    nn.init.zeros_(cell.bias_hh)
    return cell
