"""What an intrinsic reward is.

Legend: T steps, N environments, k features, C kept samples.

Order inside one iteration (the paper's): `score` all transitions with the statistics as they were during the rollout,
`observe` the rollout, then `targets` and `loss` with the new statistics. Scaling by the running return is the
trainer's business: a bonus answers raw values.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from rnd.transitions import Transitions


class Bonus(nn.Module):
    """Intrinsic reward. Parameters that require gradients are trained by the agent's one optimiser."""

    random_start = True
    """Its statistics want the steps of a random agent before the first update."""
    capturable = False
    """`score`, `observe` and `targets` are device work alone: on CUDA they may be captured once and replayed."""

    def observe(self, next_obs: Tensor) -> None:
        """Take observations [..., X] into the statistics."""

    @abstractmethod
    def score(self, transitions: Transitions) -> Tensor:
        """Raw bonus of every transition, [T, N], without gradient."""

    def targets(self, transitions: Transitions) -> Tensor:
        """What stays fixed while the rollout is optimised, [T, N, ...]; computed once."""
        return transitions.actions.new_zeros(transitions.actions.shape[:2])

    @abstractmethod
    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        """Mean loss over the kept transitions of a minibatch; `share` is the probability behind `keep`."""


def kept(keep_TN: Tensor, share: float, padded: bool | None = None) -> tuple[Tensor, Tensor]:
    """Indices [C] of the kept samples and their weights: 1/kept each, 0 for padding.

    On CUDA C is fixed by the share, six deviations above the expected number, so that shapes never depend on the draw
    and nothing waits for the device. Elsewhere there is no padding: it would cost time.
    """
    keep_B = keep_TN.flatten()
    if not (keep_B.is_cuda if padded is None else padded):
        index_C = keep_B.nonzero().flatten()
        return index_C, torch.full((len(index_C),), 1 / max(len(index_C), 1), device=keep_B.device)
    total = keep_B.numel()
    capacity = total
    if share < 1:
        capacity = min(total, math.ceil(total * share + 6 * math.sqrt(total * share * (1 - share))))
    index_C = keep_B.to(torch.uint8).sort(descending=True, stable=True).indices[:capacity]
    kept_C = keep_B[index_C].float()
    return index_C, kept_C / kept_C.sum().clamp_min(1)
