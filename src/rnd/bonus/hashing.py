"""Hashes on the device: of observations for counts and first visits, of random numbers for more of them.

Legend: B observations, X the components of one, W its 64-bit words.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 2048
"""Observations hashed at a time."""


def hash64(obs_BX: Tensor) -> Tensor:
    """A 64-bit hash of every row: the sum of its words, each mixed with its position. The same on every device."""
    words_BW = as_words(obs_BX)
    place_W = torch.arange(1, words_BW.shape[1] + 1, device=obs_BX.device)
    return mix(mix(words_BW + weyl(place_W)).sum(1))


def hash_rollout(obs: Tensor) -> Tensor:
    """The hashes [T, N] of observations [T, N, X]."""
    hash_B = torch.cat([hash64(chunk.flatten(1)) for chunk in obs.flatten(0, 1).split(CHUNK)])
    return hash_B.view(obs.shape[:2])


def as_words(obs_BX: Tensor) -> Tensor:
    """The bytes of every row as 64-bit words."""
    if obs_BX.dtype == torch.float32:
        return (obs_BX + 0.0).contiguous().view(torch.int32).long()  # + 0.0: the two zeros are one observation
    assert obs_BX.dtype == torch.uint8, "observations are uint8 images or float32 vectors"
    padding = -obs_BX.shape[1] % 8
    return torch.nn.functional.pad(obs_BX, (0, padding)).contiguous().view(torch.int64)


def weyl(number: Tensor) -> Tensor:
    """Numbers 1, 2, ... to words far apart: multiples of the golden ratio modulo 2^64."""
    return number * signed(0x9E3779B97F4A7C15)


def mix(x: Tensor) -> Tensor:
    """SplitMix64's output function in wrapping signed arithmetic (`rnd.envs.splitmix.mix` on unsigned integers)."""
    x = (x ^ shift_right(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shift_right(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ shift_right(x, 31)


def mix32(x: Tensor) -> Tensor:
    """MurmurHash3's finaliser in wrapping signed arithmetic."""
    x = (x ^ (x >> 16 & 0xFFFF)) * -0x7A143595
    x = (x ^ (x >> 13 & 0x7FFFF)) * -0x3D4D51CB
    return x ^ (x >> 16 & 0xFFFF)


def shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift: zeros come in from the left."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
