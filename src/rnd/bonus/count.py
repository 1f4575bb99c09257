"""Visit counts of hashed observations (section 2.1): 1/n or 1/sqrt(n), the tabular bonus.

Legend: T steps, N environments, X the shape of one observation, R rows of the table.

Memory is bounded by a count-min sketch: an observation has one counter in each row, and its count is the smallest of
them. It is exact until observations collide in every row at once, and then too high, never too low.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rnd.bonus.base import BonusModule
from rnd.bonus.hashing import CHUNK, hash64, mix, weyl
from rnd.config import BonusOptions
from rnd.data.transitions import Transitions
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.envs.spec import ActionSpec, ObservationSpec

ROWS, SLOTS = 4, 1 << 20
"""32 MB. With 100,000 distinct observations about one in 10,000 is counted too high."""


class Count(BonusModule):
    """i_t = n(s_{t+1})^-p, where n counts this visit and those of earlier rollouts to exactly this observation."""

    @dataclass(frozen=True)
    class Options(BonusOptions):
        """The count bonus."""

        power: Literal["1", "0.5"] = "0.5"
        """Exponent p of the bonus n^-p."""

    random_start = False
    capturable = True
    counts_RS: Tensor

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        super().__init__()
        self.shape = observation.shape
        self.power = float(options.power)
        self.register_buffer("counts_RS", torch.zeros(ROWS, SLOTS, dtype=torch.int64))

    @torch.no_grad()
    def update_statistics(self, next_obs: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        for own_RB in self.slots(next_obs):
            slots_RB = ranks.all_gather(own_RB, 1)
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
