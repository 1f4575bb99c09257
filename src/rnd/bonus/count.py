"""Visit counts of hashed observations (section 2.1): 1/n or 1/sqrt(n), the tabular bonus.

Legend: T steps, N environments, X the shape of one observation, W 64-bit words of one observation, R rows of the table.

Memory is bounded by a count-min sketch: an observation has one counter in each row, and its count is the smallest of
them. It is exact until observations collide in every row at once, and then too high, never too low.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rnd.bonus.base import Bonus
from rnd.config import BonusOptions
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.transitions import Transitions

ROWS, SLOTS = 4, 1 << 20
"""32 MB. With 100,000 distinct observations about one in 10,000 is counted too high."""
CHUNK = 2048
"""Observations hashed at a time."""


class Count(Bonus):
    """i_t = n(s_{t+1})^-p, where n counts this visit and those of earlier rollouts to exactly this observation."""

    @dataclass(frozen=True)
    class Options(BonusOptions):
        """The count bonus."""

        power: Literal["1", "0.5"] = "0.5"
        """Exponent p of the bonus n^-p."""

    random_start = False
    capturable = True
    counts_RS: Tensor
    ranks: Ranks = SINGLE_PROCESS
    """Whose visits are counted."""

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        super().__init__()
        self.shape = observation.shape
        self.power = float(options.power)
        self.register_buffer("counts_RS", torch.zeros(ROWS, SLOTS, dtype=torch.int64))

    @torch.no_grad()
    def observe(self, next_obs: Tensor) -> None:
        for own_RB in self.slots(next_obs):
            slots_RB = self.ranks.all_gather(own_RB, 1)
            self.counts_RS.scatter_add_(1, slots_RB, torch.ones_like(slots_RB))

    @torch.no_grad()
    def score(self, transitions: Transitions) -> Tensor:
        earlier = [self.counts_RS.gather(1, slots_RB).amin(0) for slots_RB in self.slots(transitions.next_obs)]
        visits_B = 1 + torch.cat(earlier)
        return visits_B.float().pow(-self.power).view(transitions.actions.shape[:2])

    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        return self.counts_RS.new_zeros(()).float()

    @torch.compiler.disable(reason="generated kernels index in 32 bits, where the hash's constants do not fit")  # type: ignore[untyped-decorator]
    def slots(self, obs: Tensor) -> list[Tensor]:
        """The counters [R, B] of observations [..., X], a chunk at a time."""
        chunks = obs.reshape(-1, *self.shape).split(CHUNK)
        return [row_slots(hash64(chunk.flatten(1))) for chunk in chunks]


def row_slots(hash_B: Tensor) -> Tensor:
    """A slot in every row, [R, B]: independent hashes of the hash."""
    row_R = torch.arange(1, ROWS + 1, device=hash_B.device)
    return mix(hash_B + weyl(row_R)[:, None]) & (SLOTS - 1)


def hash64(obs_BX: Tensor) -> Tensor:
    """A 64-bit hash of every row: the sum of its words, each mixed with its position. The same on every device."""
    words_BW = as_words(obs_BX)
    place_W = torch.arange(1, words_BW.shape[1] + 1, device=obs_BX.device)
    return mix(mix(words_BW + weyl(place_W)).sum(1))


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


def shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift: zeros come in from the left."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
