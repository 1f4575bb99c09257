"""Layers and networks of the paper (appendix): the Atari torso, target and predictor. No training here.

Orthogonal weights, zero biases, no padding. Legend: B any leading shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rnd.envs.spec import ActionSpec, ObservationSpec

ROOT2 = 2**0.5
STACK = 4
"""Frames that an image policy reads."""


def orthogonal(layer: Any, gain: float = ROOT2) -> Any:
    """Orthogonal weights, zero biases."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def linear(inputs: int, outputs: int, gain: float = ROOT2) -> nn.Linear:
    layer: nn.Linear = orthogonal(nn.Linear(inputs, outputs), gain)
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
            layers += [orthogonal(nn.Conv2d(inputs, outputs, kernel, stride)), activation(**options)]
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


def encoder(observation: ObservationSpec, hidden: int, frames: int = 1) -> tuple[nn.Module, int]:
    """The target's and the predictor's layers before the fully connected ones, and their number of features."""
    if observation.kind == "image":
        return AtariTorso(frames, 3, nn.LeakyReLU, negative_slope=0.2), torso_size(3)
    inputs = observation.shape[0]
    leaky = nn.LeakyReLU(0.2)
    return nn.Sequential(linear(inputs, hidden), leaky, linear(hidden, hidden), leaky), hidden


def target_network(observation: ObservationSpec, features: int, hidden: int) -> nn.Module:
    """A random network that is never trained."""
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
    sizes = ((64, 64, 3, 1), (64, 32, 4, 2), (32, 1, 8, 4))
    first, second, third = (orthogonal(nn.ConvTranspose2d(*each)) for each in sizes)
    return nn.Sequential(*code, linear(features, size), leaky, unflatten, first, leaky, second, leaky, third)
