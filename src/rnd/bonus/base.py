"""What an intrinsic reward is.

Legend: T steps, N environments, k features, C kept samples.

Order inside one iteration (the paper's): `score` all transitions with the statistics as they were during the rollout,
`update_statistics` with the rollout, then `targets` and `loss` with the new statistics. A bonus returns raw values; the
trainer divides them by the running std of their return.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from rnd.config import BonusOptions
from rnd.data.transitions import Transitions
from rnd.distributed import SINGLE_PROCESS, Ranks


class BonusModule(nn.Module):
    """Intrinsic reward, constructed as `cls(observation, action, options)`.

    Parameters that require gradients are trained by the agent's one optimiser.
    """

    Options: type[BonusOptions] = BonusOptions
    """The dataclass of its own options."""
    random_start = True
    """Its statistics are initialised by the steps of a random agent before the first update."""
    reads_obs = False
    """`score` or `loss` reads the newest frame of s_t, not s_{t+1} alone: other agents must give it too."""
    reads_action = False
    """They read all of s_t and a_t: other agents must give both."""
    episode_memory = 0
    """Steps among which `transitions.first_visit` finds earlier visits of an episode; 0: it is not computed."""
    capturable = False
    """`score`, `update_statistics` and `targets` never synchronise with the host: a CUDA graph may capture them."""

    def update_statistics(self, next_obs: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        """Update the statistics with observations [..., X]; `ranks`: processes whose observations count together."""

    @abstractmethod
    def score(self, transitions: Transitions) -> Tensor:
        """Raw bonus of every transition, [T, N], without gradient. Changes no state."""

    def episode_bonus(self, num_envs: int) -> EpisodeBonus | None:
        """Where the bonus depends on all earlier states of the episode: what computes it, in place of `score`."""
        return None

    def embed(self, transitions: Transitions) -> Tensor:
        """Features of s_{t+1}, [T, N, k], without gradient: what `episode_bonus` reads. Changes no state."""
        raise NotImplementedError

    def targets(self, transitions: Transitions) -> Tensor:
        """Regression targets that stay fixed during the epochs, [T, N, ...]; computed once per rollout."""
        return transitions.actions.new_zeros(transitions.actions.shape[:2])

    def trains_on(self, transitions: Transitions, keep_TN: Tensor) -> Tensor:
        """Which of the kept transitions [T, N] the loss is a mean of."""
        return keep_TN

    @abstractmethod
    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        """Mean loss over the kept transitions of a minibatch; `share` is the probability behind `keep`."""


class EpisodeBonus(nn.Module):
    """Raw bonuses from the features of an episode's states, in the order of time. Its state has a row per environment.

    It never synchronises with the host."""

    @abstractmethod
    def forward(self, features_TNk: Tensor, first_TN: Tensor, start_TNk: Tensor | None = None) -> Tensor:
        """The raw bonus [T, N] of T states; adds them to their episodes.

        `first`: the state is the first of its episode that is rewarded. `start`: then the one before it belongs to the
        episode too, and has these features."""

    @staticmethod
    @abstractmethod
    def reshard(states: list[dict[str, Any]], world: int) -> list[dict[str, Any]]:
        """States of `world` ranks from those of another number: each has its own environments."""


def kept(keep_TN: Tensor, share: float, padded: bool | None = None) -> tuple[Tensor, Tensor]:
    """Indices [C] of the kept samples and their weights: 1/kept each, 0 for padding.

    On CUDA C is fixed by the share, six standard deviations above the expected number: shapes do not depend on the
    draw, and the host need not wait for the device. Elsewhere there is no padding: it would cost time.
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
