"""Layers and networks of the paper (appendix): the Atari torso, target and predictor. No training here.

Orthogonal weights, zero biases, no padding. Legend: B any leading shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rnd.envs.packed import split
from rnd.envs.spec import SCREEN, STACK, ActionSpec, ObservationSpec
from rnd.models.convolutions import feature_maps, fused, operand_dtype

ROOT2 = 2**0.5


def orthogonal(layer: Any, gain: float = ROOT2) -> Any:
    """Orthogonal weights, zero biases."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def linear(inputs: int, outputs: int, gain: float = ROOT2) -> nn.Linear:
    layer: nn.Linear = orthogonal(nn.Linear(inputs, outputs), gain)
    return layer


class MapLinear(nn.Linear):
    """A fully connected layer over feature maps [B, C, H, W] as if they were flattened, or over vectors."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4 and x.is_cuda:
            return linear_channels_last(x, self.weight, self.bias)
        return super().forward(x.flatten(1) if x.dim() == 4 else x)


def linear_channels_last(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """F.linear of flattened maps [B, C, H, W] that are channels last in memory: the weights are permuted to that order,
    because they are few, instead of the maps."""
    permuted = weight.view(-1, *x.shape[1:]).movedim(1, -1)
    return F.linear(x.movedim(1, -1).flatten(1), permuted.flatten(1), bias)


def map_linear(inputs: int, outputs: int) -> MapLinear:
    layer: MapLinear = orthogonal(MapLinear(inputs, outputs))
    return layer


class AtariTorso(nn.Sequential):
    """Three convolutions over 84x84 frames: feature maps [B, 64, H, W], which `map_linear` reads. Frames are float, or
    uint8, which is divided by 255.

    On a GPU that can, they are computed by the fused kernels of `rnd.models.convolutions`, from the same weights.
    """

    def __init__(self, channels: int, third_kernel: int, activation: type[nn.Module], **options: float):
        layers: list[Any] = []
        for inputs, outputs, kernel, stride in ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, third_kernel, 1)):
            layers += [orthogonal(nn.Conv2d(inputs, outputs, kernel, stride)), activation(**options)]
        super().__init__(*layers)
        self.slope = options.get("negative_slope", 0.0)
        self.fused = fused(layers[0].weight.device)

    def _apply(self, *args: Any, **kwargs: Any) -> AtariTorso:
        """PyTorch calls this when a module moves to another device."""
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.fused = fused(next(self.parameters()).device)
        return self

    def forward(self, x: Tensor) -> Tensor:
        dtype = operand_dtype() if self.fused and not x.requires_grad else None
        if dtype is not None:
            convolutions: list[Any] = [self[0], self[2], self[4]]
            weights, biases = [c.weight for c in convolutions], [c.bias for c in convolutions]
            return feature_maps(x, weights, biases, self.slope, dtype)
        if x.dtype == torch.uint8:
            x = pixels(x)
        for layer in self:
            x = layer(x)
        return x


def pixels(x: Tensor) -> Tensor:
    """uint8 images [B, C, H, W] as float between 0 and 1."""
    if x.is_cuda:
        return x.to(torch.float32, copy=True).div_(255)
    # On a CPU in the memory order of the weights: the first convolution would copy it otherwise. Bytes are put in order
    # a channel at a time, and are few: one pass that also converts them takes several times as long.
    channels_last = torch.stack(x.unbind(1), dim=-1)
    return channels_last.to(torch.float32).div_(255).movedim(-1, 1)


def torso_size(third_kernel: int) -> int:
    """Values of `AtariTorso`'s maps: 84 -> 20 -> 9 -> 10 - third_kernel pixels on a side."""
    return 64 * (10 - third_kernel) ** 2


class Joined(nn.Module):
    """Two networks for the parts of mixed observations: one reads the stacked images, the other the newest vector.
    Their features stand side by side."""

    def __init__(self, observation: ObservationSpec, image: nn.Module, vector: nn.Module | None):
        """`vector`: None where the observation consists of images alone."""
        super().__init__()
        self.pixels, self.image, self.vector = observation.pixels, image, vector

    def forward(self, rows: Tensor) -> Tensor:
        """Features of rows [B, X] or stacks of them [B, S, X], bytes or whitened."""
        image, vector = split(rows if rows.dim() == 3 else rows.unsqueeze(1), self.pixels)
        frames = image.shape[1] * self.pixels // SCREEN**2
        features: Tensor = self.image(image.reshape(len(rows), frames, SCREEN, SCREEN))
        return features if self.vector is None else torch.cat([features, self.vector(vector[:, -1])], dim=-1)


def encoder(observation: ObservationSpec, hidden: int, frames: int = 1) -> tuple[nn.Module, int]:
    """The target's and the predictor's layers before the fully connected ones, and their number of features."""
    leaky, vector = nn.LeakyReLU(0.2), observation.vector_size

    def vector_layers() -> nn.Module:
        return nn.Sequential(linear(vector, hidden), leaky, linear(hidden, hidden), leaky)

    if observation.kind == "vector":
        return vector_layers(), hidden
    torso = AtariTorso(frames * max(observation.images, 1), 3, nn.LeakyReLU, negative_slope=0.2)
    if observation.kind == "image":
        return torso, torso_size(3)
    # as many features of the image as of the vector: the target would hardly depend on few among thousands
    image = nn.Sequential(torso, map_linear(torso_size(3), hidden), leaky)
    return Joined(observation, image, vector_layers() if vector else None), hidden * (2 if vector else 1)


def target_network(observation: ObservationSpec, features: int, hidden: int) -> nn.Module:
    """A random network that is never trained."""
    torso, size = encoder(observation, hidden)
    return nn.Sequential(torso, map_linear(size, features)).requires_grad_(False)


def predictor_network(observation: ObservationSpec, features: int, hidden: int) -> nn.Module:
    """Learns to imitate the target: the same encoder and two more layers."""
    torso, size = encoder(observation, hidden)
    layers = [torso, map_linear(size, features), nn.ReLU(), linear(features, features), nn.ReLU()]
    return nn.Sequential(*layers, linear(features, features))


class ActionPredictor(nn.Module):
    """The predictor of the forward dynamics: reads a stack of frames, and the action before each of its fc layers."""

    def __init__(self, observation: ObservationSpec, action: ActionSpec, features: int, hidden: int):
        super().__init__()
        self.torso, size = encoder(observation, hidden, frames=STACK)
        extra = sum(action.sizes)
        self.layers = nn.ModuleList(linear(inputs + extra, features) for inputs in (size, features, features))

    def forward(self, obs_BX: Tensor, actions_BA: Tensor) -> Tensor:
        """`actions` as `rnd.models.actions.encode` gives them."""
        x: Tensor = self.torso(obs_BX).flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(torch.cat([x, actions_BA], dim=-1)))
        out: Tensor = self.layers[-1](torch.cat([x, actions_BA], dim=-1))
        return out


def autoencoder_network(observation: ObservationSpec, features: int, hidden: int) -> nn.Module:
    """The predictor's encoder, a code of k features, and the encoder's mirror image."""
    leaky = nn.LeakyReLU(0.2)
    torso, size = encoder(observation, hidden)
    code = [torso, map_linear(size, features), leaky]
    if observation.kind == "vector":
        return nn.Sequential(*code, *vector_decoder(features, hidden, observation.vector_size))
    image = image_decoder(features, max(observation.images, 1))
    if observation.kind == "image":
        return nn.Sequential(*code, *image)
    parts: list[nn.Module] = [nn.Sequential(*image, nn.Flatten(1))]
    if observation.vector_size:
        parts.append(nn.Sequential(*vector_decoder(features, hidden, observation.vector_size)))
    return nn.Sequential(*code, SideBySide(parts))


def vector_decoder(features: int, hidden: int, outputs: int) -> list[nn.Module]:
    leaky = nn.LeakyReLU(0.2)
    out = linear(hidden, outputs, gain=1.0)
    return [linear(features, hidden), leaky, linear(hidden, hidden), leaky, out]


def image_decoder(features: int, images: int) -> list[nn.Module]:
    leaky, side = nn.LeakyReLU(0.2), 7
    sizes = ((64, 64, 3, 1), (64, 32, 4, 2), (32, images, 8, 4))
    first, second, third = (orthogonal(nn.ConvTranspose2d(*each)) for each in sizes)
    unflatten = nn.Unflatten(1, (64, side, side))
    return [linear(features, torso_size(3)), leaky, unflatten, first, leaky, second, leaky, third]


class SideBySide(nn.Module):
    """The outputs of several networks for the same input."""

    def __init__(self, networks: list[nn.Module]):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([network(x) for network in self.networks], dim=-1)
