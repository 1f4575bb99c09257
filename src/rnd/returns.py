"""Two streams of returns and advantages, as pure functions (section 2.3).

Legend: T steps, N environments, E/I extrinsic and intrinsic.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rnd.config import Config


class Stream(NamedTuple):
    """One stream after advantage estimation."""

    advantages_TN: Tensor
    returns_TN: Tensor


class Targets(NamedTuple):
    """What the update regresses on and pushes along."""

    advantages_TN: Tensor
    returns_ext_TN: Tensor
    returns_int_TN: Tensor


def gae(rewards_TN: Tensor, values_TpN: Tensor, done_TN: Tensor, gamma: float, lam: float, episodic: bool) -> Stream:
    """Generalised advantage estimation; `values` has T + 1 rows. A non-episodic stream is never cut."""
    alive_TN = 1.0 - done_TN.to(rewards_TN.dtype) if episodic else torch.ones_like(rewards_TN)
    delta_TN = rewards_TN + gamma * values_TpN[1:] * alive_TN - values_TpN[:-1]
    decay_TN = gamma * lam * alive_TN
    advantages_TN = torch.empty_like(rewards_TN)
    advantage_N = torch.zeros_like(rewards_TN[0])
    for t in reversed(range(len(rewards_TN))):
        advantage_N = torch.addcmul(delta_TN[t], decay_TN[t], advantage_N)
        advantages_TN[t] = advantage_N
    return Stream(advantages_TN, advantages_TN + values_TpN[:-1])


def combine(
    config: Config,
    rewards_ext_TN: Tensor,
    rewards_int_TN: Tensor,
    values_ext_TpN: Tensor,
    values_int_TpN: Tensor,
    done_TN: Tensor,
) -> Targets:
    """A = c_E A_E + c_I A_I with a horizon and a discount each; or one stream of the summed rewards."""
    lam = config.gae_lambda
    if config.value_heads == 1:
        rewards_TN = config.ext_coef * rewards_ext_TN + config.int_coef * rewards_int_TN
        one = gae(rewards_TN, values_ext_TpN, done_TN, config.gamma_ext, lam, episodic=True)
        return Targets(one.advantages_TN, one.returns_TN, torch.zeros_like(one.returns_TN))
    ext = gae(rewards_ext_TN, values_ext_TpN, done_TN, config.gamma_ext, lam, episodic=True)
    int_ = gae(rewards_int_TN, values_int_TpN, done_TN, config.gamma_int, lam, episodic=config.episodic_int)
    advantages_TN = config.ext_coef * ext.advantages_TN + config.int_coef * int_.advantages_TN
    return Targets(advantages_TN, ext.returns_TN, int_.returns_TN)
