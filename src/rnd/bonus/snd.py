"""Self-supervised network distillation (Pecháč, Chovanec and Farkaš 2023): RND whose target is trained too.

Legend: C kept transitions, X the shape of one observation, P pixels or components, k features.

The noise of the augmentation is a hash of the update's draws: the same on every device, and in a captured graph.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from rnd.bonus.base import kept
from rnd.bonus.hashing import mix32
from rnd.bonus.prediction import squared_error
from rnd.bonus.rnd import RND
from rnd.config import BonusOptions
from rnd.config.ranges import Fraction, NonNegativeFloat
from rnd.data.transitions import Transitions
from rnd.envs.packed import split
from rnd.envs.spec import SCREEN, ActionSpec, ObservationSpec

TILES = 6
"""Sizes of masked tiles: 1, 2, 4, 8, 12 and 16 pixels on a side."""
MIN_VARIANCE = 1e-4
"""VICReg's epsilon."""


class SND(RND):
    """i_t = mean over k of (predictor(s_{t+1}) - target(s_{t+1}))^2. The target learns by a loss of its own, without
    gradients from the predictor, and the predictor follows the target as it is."""

    cache_targets = False

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: BonusOptions):
        super().__init__(observation, action, options)
        self.target.requires_grad_(True)

    @abstractmethod
    def target_loss(self, picked: Transitions, weight_C: Tensor) -> Tensor:
        """The self-supervised loss of the target, a weighted mean over the picked transitions."""

    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        index_C, weight_C = kept(keep_TN, share)
        picked = transitions.pick(index_C)
        error_C = squared_error(self.predict(picked), self.target_of(picked).detach())
        return (error_C * weight_C).sum() + self.target_loss(picked, weight_C)


class SNDV(SND):
    """SND-V: two augmented views of one state shall have distance 0, those of different states distance 1."""

    @dataclass(frozen=True)
    class Options(BonusOptions):
        """SND-V."""

        noise: NonNegativeFloat = 0.2
        """Augmentation: uniform noise up to this, on whitened observations."""
        masked: Fraction = 0.1
        """Augmentation of images: share of the area that tiles cover, in every second view."""

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        super().__init__(observation, action, options)
        self.noise, self.masked, self.pixels = options.noise, options.masked, observation.pixels

    def target_loss(self, picked: Transitions, weight_C: Tensor) -> Tensor:
        assert picked.draw is not None, "an update gives random numbers"
        obs_CX, draw_C = self.newest(picked), picked.draw.flatten()
        views = torch.cat([self.view(obs_CX, draw_C, number) for number in range(2)])
        one_Ck, two_Ck = self.target(views).chunk(2)  # one pass: a GPU is not filled by the samples of one view
        other_C = partners(draw_C, weight_C)
        return (contrastive_loss(one_Ck, two_Ck, two_Ck[other_C]) * weight_C).sum()

    def view(self, obs_CX: Tensor, draw_C: Tensor, number: int) -> Tensor:
        """A random view of whitened observations; of images with a vector, each part is augmented in its own way."""
        if not self.pixels:
            return augment(obs_CX, draw_C, number, self.noise, self.masked)
        image_CP, vector_CV = split(obs_CX, self.pixels)
        image_CX = augment(image_CP.unflatten(1, (-1, SCREEN, SCREEN)), draw_C, number, self.noise, self.masked)
        # other draws than the pixels'
        return torch.cat([image_CX.flatten(1), augment(vector_CV, draw_C, 2 + number, self.noise, self.masked)], dim=1)


class SNDVIC(SND):
    """SND-VIC: VICReg on the features of s_t and s_{t+1}."""

    reads_action = True

    def target_loss(self, picked: Transitions, weight_C: Tensor) -> Tensor:
        before_Ck, after_Ck = (self.target(self.whitened(frames[None])).float() for frames in picked.newest)
        return vicreg_loss(before_Ck, after_Ck, weight_C)


def contrastive_loss(view_Ck: Tensor, same_Ck: Tensor, other_Ck: Tensor) -> Tensor:
    """(tau - distance^2)^2 with tau = 0 for the same state and tau = 1 for another; the mean of both."""
    near_C, far_C = squared_error(view_Ck, same_Ck), squared_error(view_Ck, other_Ck)
    return (near_C.square() + (1 - far_C).square()) / 2


def vicreg_loss(one_Ck: Tensor, two_Ck: Tensor, weight_C: Tensor) -> Tensor:
    """Invariance + variance + covariance / 25 (Bardes et al. 2022), over the samples that have weight."""
    number = (weight_C > 0).sum()
    unbiased = number / (number - 1).clamp_min(1)
    loss = (squared_error(one_Ck, two_Ck) * weight_C).sum()
    for features_Ck in (one_Ck, two_Ck):
        centred_Ck = features_Ck - weight_C @ features_Ck
        covariance_kk = (centred_Ck * weight_C[:, None]).T @ centred_Ck * unbiased
        variance_k = covariance_kk.diagonal()
        spread = (1 - (variance_k.clamp_min(0) + MIN_VARIANCE).sqrt()).clamp_min(0).mean()
        others = (covariance_kk.square().sum() - variance_k.square().sum()) / len(variance_k)
        loss = loss + spread + others / 25
    return loss * (number > 0)


def partners(draw_C: Tensor, weight_C: Tensor) -> Tensor:
    """For every sample another one that has weight too, at random."""
    order_C = torch.where(weight_C > 0, draw_C, 2.0).argsort(stable=True)
    place_C = torch.arange(len(draw_C), device=draw_C.device)
    following_C = order_C[(place_C + 1) % (weight_C > 0).sum().clamp_min(1)]
    return torch.empty_like(order_C).scatter_(0, order_C, following_C)


def augment(obs_CX: Tensor, draw_C: Tensor, view: int, noise: float, masked: float) -> Tensor:
    """A random view of whitened observations: noise on all; tiles of images, in every second one, are the mean."""
    pixel_P = torch.arange(math.prod(obs_CX.shape[1:]), dtype=torch.int32, device=obs_CX.device)
    noise_CX = (uniform(draw_C, pixel_P[None], 2 * view) * 2 - 1).view(obs_CX.shape) * noise
    if obs_CX.dim() == 2:
        return obs_CX + noise_CX
    width = obs_CX.shape[-1]
    kind_C = uniform(draw_C, pixel_P[None, :2] - 2, 2 * view + 1)  # places below 0: no tile has them
    size_C1 = (kind_C[:, :1] * TILES).int()
    side_C1 = torch.where(size_C1 < 4, torch.ones_like(size_C1) << size_C1, 4 * (size_C1 - 1))
    tile_CP = pixel_P // width // side_C1 * width + pixel_P % width // side_C1
    hidden_CP = (uniform(draw_C, tile_CP, 2 * view + 1) < masked) & (kind_C[:, 1:] < 0.5)
    return (obs_CX + noise_CX) * ~hidden_CP.view(obs_CX.shape)


def uniform(draw_C: Tensor, position_CP: Tensor, salt: int) -> Tensor:
    """Numbers in [0, 1) [C, P], a hash of the sample's draw, of the position (int32) and of a salt."""
    seed_C = mix32(mix32(draw_C.view(torch.int32)) + salt)
    bits_CP = mix32(seed_C[:, None] ^ mix32(position_CP))  # torch.compile does not wrap place * constant
    return (bits_CP >> 8 & 0xFFFFFF).float() / (1 << 24)
