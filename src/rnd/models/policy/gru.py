"""The paper's recurrent policy (appendix): the CNN's 256 features, or a vector's, through a gated recurrent unit.

Legend: T steps, N environments, B any batch, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rnd.config import state_field
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.networks import linear
from rnd.models.policy.base import ActorCritic, PolicyOutput, image_layers, mixed_layers, vector_torso
from rnd.models.policy.mlp import WidthOptions
from rnd.models.policy.recurrence import fused, recurrence


class GRU(ActorCritic):
    """Reads images, vectors, or both; its hidden state is zeroed at every episode's start."""

    reads = ("image", "vector", "mixed")

    @dataclass(frozen=True)
    class Options(WidthOptions):
        """The recurrent policy."""

        kernel: Literal[3, 4] = state_field(4, "third convolution")
        """Third convolution: 4 x 4 as in the authors' release, or 3 x 3 as in the encoder that the paper cites."""
        cell: Literal["release", "torch"] = state_field("release", "recurrent cell")
        """Where the reset gate acts: on the state before the matrix product, as in the authors' release and Cho et al.
        (2014), or after it, as in torch.nn.GRUCell."""

    gru: Any

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        image, size = observation.kind == "image", 256
        if image:
            torso: nn.Module = nn.Sequential(*image_layers(options.kernel))
        elif observation.kind == "mixed":
            torso = nn.Sequential(*mixed_layers(observation, options.kernel, options.width, size))
        else:
            size = options.width
            torso = vector_torso(observation.shape[0], size)
        cell = ReleaseCell(size) if options.cell == "release" else torch_cell(size)
        super().__init__(torso, size, action, image, cell)
        self.hidden_size = size
        self.fused = options.cell == "release" and fused(size)
        # A compiler would unroll the loop, for minutes. Without a GPU nothing is compiled, nor imported for it.
        self.step_by_step = torch.compiler.disable(step_by_step) if torch.cuda.is_available() else step_by_step

    def forward(self, obs_BX: Tensor, hidden_BH: Tensor) -> tuple[PolicyOutput, Tensor]:
        hidden_BH = self.gru(self.features(obs_BX), hidden_BH)
        return self.heads(hidden_BH), hidden_BH

    def unroll(self, obs_TNX: Tensor, hidden_NH: Tensor, first_TN: Tensor) -> PolicyOutput:
        steps, envs = obs_TNX.shape[:2]
        x_TNH = self.features(obs_TNX.flatten(0, 1)).view(steps, envs, -1)
        if self.fused and x_TNH.is_cuda:
            states_TNH = self.gru.unroll(x_TNH, hidden_NH, first_TN)
        else:
            states_TNH = self.step_by_step(self.gru, x_TNH, hidden_NH, first_TN)
        return self.heads_over_time(states_TNH.flatten(0, 1), steps, envs)


class ReleaseCell(nn.Module):
    """h' = m h + (1 - m) tanh(W [r h, x]), with [m, r] = sigmoid(V [h, x]); V and W orthogonal, biases zero."""

    def __init__(self, size: int):
        super().__init__()
        self.gates, self.candidate = linear(2 * size, 2 * size, gain=1.0), linear(2 * size, size, gain=1.0)

    def forward(self, x_BH: Tensor, hidden_BH: Tensor) -> Tensor:
        keep_BH, reset_BH = self.gates(torch.cat([hidden_BH, x_BH], -1)).sigmoid().chunk(2, -1)
        new_BH = self.candidate(torch.cat([reset_BH * hidden_BH, x_BH], -1)).tanh()
        mixed: Tensor = keep_BH * hidden_BH + (1 - keep_BH) * new_BH
        return mixed

    def unroll(self, x_TNH: Tensor, hidden_NH: Tensor, first_TN: Tensor) -> Tensor:
        """All states, as `step_by_step` computes them: the inputs' part in one product, the chain in one kernel."""
        size = hidden_NH.shape[-1]
        parts = [(layer.weight[:, :size], layer.weight[:, size:], layer.bias) for layer in (self.gates, self.candidate)]
        (gate_weight, gate_x_weight, gate_bias), (weight, x_weight, bias) = parts
        gates_x = F.linear(x_TNH, gate_x_weight, gate_bias).float()
        candidate_x = F.linear(x_TNH, x_weight, bias).float()
        states_TNH: Tensor = recurrence(gates_x, candidate_x, hidden_NH, (~first_TN).float(), gate_weight, weight)[0]
        return states_TNH


def step_by_step(cell: nn.Module, x_TNH: Tensor, hidden_NH: Tensor, first_TN: Tensor) -> Tensor:
    """The states of all steps; the state before a step is zeroed where an episode starts."""
    states = []
    for x_NH, keep_N1 in zip(x_TNH, (~first_TN).to(x_TNH.dtype).unsqueeze(-1), strict=True):
        hidden_NH = cell(x_NH, hidden_NH * keep_N1)
        states.append(hidden_NH)
    return torch.stack(states)


def torch_cell(size: int) -> nn.GRUCell:
    """Orthogonal weights per gate, zero biases."""
    cell = nn.GRUCell(size, size)
    for weight in (cell.weight_ih, cell.weight_hh):
        for gate in weight.chunk(3):
            nn.init.orthogonal_(gate)
    nn.init.zeros_(cell.bias_ih)
    nn.init.zeros_(cell.bias_hh)
    return cell
