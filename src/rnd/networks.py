"""Networks of the paper (appendix): torsos, policy, target and predictor. No training here.

Orthogonal weights, zero biases, no padding. Legend: B any leading shape, S stacked frames, H hidden size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rnd.actions import logits_size
from rnd.envs.spec import ActionSpec, ObservationSpec

ROOT2 = 2**0.5
STACK = 4
"""Frames that an image policy sees."""


class PolicyOutput(NamedTuple):
    """What the policy says about observations."""

    logits: Tensor
    value_ext: Tensor
    value_int: Tensor


def orthogonal(layer: Any, gain: float) -> Any:
    """Orthogonal weights, zero biases."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def linear(inputs: int, outputs: int, gain: float = ROOT2) -> nn.Linear:
    layer: nn.Linear = orthogonal(nn.Linear(inputs, outputs), gain)
    return layer


def conv(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    layer: nn.Conv2d = orthogonal(nn.Conv2d(inputs, outputs, kernel, stride), ROOT2)
    return layer


def deconv(inputs: int, outputs: int, kernel: int, stride: int) -> nn.ConvTranspose2d:
    layer: nn.ConvTranspose2d = orthogonal(nn.ConvTranspose2d(inputs, outputs, kernel, stride), ROOT2)
    return layer


class AtariTorso(nn.Sequential):
    """Three convolutions over 84x84 frames; flattened.

    On CUDA the first two are computed as convolutions of stride 1 over patches folded into channels: the same sums in
    another order. Few channels and a large stride leave the tensor cores idle; the folded form has 16 and 4 times the
    channels.
    """

    def __init__(self, channels: int, third_kernel: int, activation: type[nn.Module], **options: float):
        layers: list[nn.Module] = []
        for inputs, outputs, kernel, stride in ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, third_kernel, 1)):
            layers += [conv(inputs, outputs, kernel, stride), activation(**options)]
        super().__init__(*layers, nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda:
            return self.folded(x)
        for layer in self:
            x = layer(x)
        return x

    def folded(self, x: Tensor) -> Tensor:
        conv1, activation, conv2, _, *rest = self
        x = folded_conv(conv1, fold(x, 4))
        # folded first: what the activation's gradient needs is then what the next convolution keeps anyway
        x = activation(fold(x, 2))
        x = activation(folded_conv(conv2, x))
        for layer in rest:
            x = layer(x)
        return x


def fold(x: Tensor, stride: int) -> Tensor:
    """Patches of stride x stride pixels as channels."""
    return F.pixel_unshuffle(x, stride).contiguous(memory_format=torch.channels_last)


def folded_conv(layer: Any, x: Tensor) -> Tensor:
    """A convolution whose stride divides kernel and picture, over the folded picture."""
    return F.conv2d(x, F.pixel_unshuffle(layer.weight, layer.stride[0]), layer.bias)


def torso_size(third_kernel: int) -> int:
    """Outputs of `AtariTorso`: 84 -> 20 -> 9 -> 10 - third_kernel pixels on a side."""
    return 64 * (10 - third_kernel) ** 2


class Residual(nn.Module):
    """x + ReLU(fc(x))."""

    def __init__(self, width: int):
        super().__init__()
        self.fc = linear(width, width, gain=0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.fc(x))


class Policy(nn.Module):
    """Torso, an optional GRU, a residual branch each for the policy and for the values, and the heads."""

    def __init__(self, kind: str, observation: ObservationSpec, action: ActionSpec, width: int, third_kernel: int = 4):
        super().__init__()
        self.image = observation.kind == "image"
        self.torso, size = policy_torso(kind, observation, width, third_kernel)
        self.gru = gru_cell(size) if kind == "gru" else None
        self.hidden_size = size if kind == "gru" else 0
        self.policy_branch, self.value_branch = Residual(size), Residual(size)
        continuous = action.kind == "continuous"
        self.logits = linear(size, action.sizes[0] if continuous else logits_size(action), gain=0.01)
        self.log_std = nn.Parameter(torch.zeros(action.sizes[0])) if continuous else None
        self.value_int, self.value_ext = linear(size, 1, gain=0.01), linear(size, 1, gain=0.01)

    def forward(self, obs_BX: Tensor, hidden_BH: Tensor) -> tuple[PolicyOutput, Tensor]:
        """One step. `hidden` is [B, 0] for a policy without memory."""
        features = self.features(obs_BX)
        if self.gru is not None:
            features = hidden_BH = self.gru(features, hidden_BH)
        return self.heads(features), hidden_BH

    def unroll(self, obs_TNX: Tensor, hidden_NH: Tensor, first_TN: Tensor) -> PolicyOutput:
        """T steps from the hidden state before them; the state is zeroed where an episode starts."""
        steps, envs = obs_TNX.shape[:2]
        features = self.features(obs_TNX.flatten(0, 1))
        if self.gru is not None:
            keep_TN1 = (~first_TN).to(features.dtype).unsqueeze(-1)
            states = []
            for x_NH, keep_N1 in zip(features.view(steps, envs, -1), keep_TN1, strict=True):
                hidden_NH = self.gru(x_NH, hidden_NH * keep_N1)
                states.append(hidden_NH)
            features = torch.stack(states).flatten(0, 1)
        return PolicyOutput(*(x.view(steps, envs, *x.shape[1:]) for x in self.heads(features)))

    def features(self, obs_BX: Tensor) -> Tensor:
        if self.image:
            obs_BX = obs_BX.float() / 255
        features: Tensor = self.torso(obs_BX)
        return features

    def heads(self, features: Tensor) -> PolicyOutput:
        policy, value = self.policy_branch(features), self.value_branch(features)
        logits = self.logits(policy)
        if self.log_std is not None:
            logits = torch.cat([logits, self.log_std.expand_as(logits)], dim=-1)
        return PolicyOutput(logits, self.value_ext(value).squeeze(-1), self.value_int(value).squeeze(-1))


def policy_torso(kind: str, observation: ObservationSpec, width: int, third_kernel: int) -> tuple[nn.Module, int]:
    """Features of the policy, and how many."""
    if observation.kind == "vector":
        inputs = observation.shape[0]
        return nn.Sequential(linear(inputs, width), nn.ReLU(), linear(width, width), nn.ReLU()), width
    layers = [AtariTorso(STACK, third_kernel, nn.ReLU), linear(torso_size(third_kernel), 256), nn.ReLU()]
    if kind == "gru":
        return nn.Sequential(*layers), 256
    return nn.Sequential(*layers, linear(256, 448), nn.ReLU()), 448


def gru_cell(size: int) -> nn.GRUCell:
    cell = nn.GRUCell(size, size)
    for weight in (cell.weight_ih, cell.weight_hh):
        for gate in weight.chunk(3):
            nn.init.orthogonal_(gate)
    nn.init.zeros_(cell.bias_ih)
    nn.init.zeros_(cell.bias_hh)
    return cell


def encoder(observation: ObservationSpec, hidden: int, frames: int = 1) -> tuple[nn.Module, int]:
    """The target's and the predictor's layers before the fully connected ones, and how many features they give."""
    if observation.kind == "image":
        return AtariTorso(frames, 3, nn.LeakyReLU, negative_slope=0.2), torso_size(3)
    inputs = observation.shape[0]
    leaky = nn.LeakyReLU(0.2)
    return nn.Sequential(linear(inputs, hidden), leaky, linear(hidden, hidden), leaky), hidden


def target_network(observation: ObservationSpec, features: int, hidden: int) -> nn.Module:
    """A random network, frozen for ever."""
    torso, size = encoder(observation, hidden)
    return nn.Sequential(torso, linear(size, features)).requires_grad_(False)


def predictor_network(observation: ObservationSpec, features: int, hidden: int) -> nn.Module:
    """Learns to imitate the target: the same encoder and two more layers."""
    torso, size = encoder(observation, hidden)
    layers = [torso, linear(size, features), nn.ReLU(), linear(features, features), nn.ReLU()]
    return nn.Sequential(*layers, linear(features, features))


class ActionPredictor(nn.Module):
    """The predictor of the forward dynamics: reads a stack of frames, and the action before each of its fc layers."""

    def __init__(self, observation: ObservationSpec, action: ActionSpec, features: int, hidden: int):
        super().__init__()
        self.torso, size = encoder(observation, hidden, frames=STACK)
        extra = sum(action.sizes)
        self.layers = nn.ModuleList(linear(inputs + extra, features) for inputs in (size, features, features))

    def forward(self, obs_BX: Tensor, actions_BA: Tensor) -> Tensor:
        """`actions` as `rnd.actions.encode` gives them."""
        x: Tensor = self.torso(obs_BX)
        for layer in self.layers[:-1]:
            x = F.relu(layer(torch.cat([x, actions_BA], dim=-1)))
        out: Tensor = self.layers[-1](torch.cat([x, actions_BA], dim=-1))
        return out


def autoencoder_network(observation: ObservationSpec, features: int, hidden: int) -> nn.Module:
    """The predictor's encoder, a code of k features, and the encoder's mirror image."""
    leaky = nn.LeakyReLU(0.2)
    torso, size = encoder(observation, hidden)
    code = [torso, linear(size, features), leaky]
    if observation.kind == "vector":
        out = linear(hidden, observation.shape[0], gain=1.0)
        return nn.Sequential(*code, linear(features, hidden), leaky, linear(hidden, hidden), leaky, out)
    side = 7
    unflatten = nn.Unflatten(1, (64, side, side))
    frames = [deconv(64, 64, 3, 1), leaky, deconv(64, 32, 4, 2), leaky, deconv(32, 1, 8, 4)]
    return nn.Sequential(*code, linear(features, size), leaky, unflatten, *frames)
