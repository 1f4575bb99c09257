"""Two streams of returns and advantages, as pure functions (section 2.3).

Legend: T steps, N environments, E/I extrinsic and intrinsic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnd.config import Config
from rnd.config.ranges import check_ranges
from rnd.data.normalize import STEPS_PER_PRODUCT, batch_moments
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.foundation.errors import UserError

MIN_STD = 1e-8
"""Added to the std of advantages that are normalised: where all are equal, they become 0."""


class Estimate(NamedTuple):
    """Advantages and returns of one reward stream."""

    advantages_TN: Tensor
    returns_TN: Tensor


class Targets(NamedTuple):
    """Advantages of the policy loss, and the returns that the value heads regress on."""

    advantages_TN: Tensor
    returns_ext_TN: Tensor
    returns_int_TN: Tensor


def gae(rewards_TN: Tensor, values_TpN: Tensor, done_TN: Tensor, gamma: float, lam: float, episodic: bool) -> Estimate:
    """Generalised advantage estimation; `values` has T + 1 rows. A non-episodic stream is never cut.

    A_t = sum over k >= t of the same episode of (gamma lambda)^(k - t) delta_k, as products in float64: a loop over
    time would be hundreds of small kernels on a GPU. A long rollout is several products, the last steps first.
    """
    rewards, values = rewards_TN.double(), values_TpN.double()
    end_TN = done_TN.double() if episodic else torch.zeros_like(rewards)
    delta_TN = rewards + gamma * values[1:] * (1 - end_TN) - values[:-1]
    blocks: list[Tensor] = []
    for first in reversed(range(0, len(rewards) or 1, STEPS_PER_PRODUCT)):
        block = slice(first, first + STEPS_PER_PRODUCT)
        if blocks:  # the step after the block goes on with its last one
            last = block.stop - 1
            delta_TN[last] += gamma * lam * (1 - end_TN[last]) * blocks[0][0]
        blocks.insert(0, _advantages(delta_TN[block], end_TN[block] if episodic else None, gamma * lam))
    # One block stays as it is laid out in memory, in the order in which its sums are taken later.
    advantages_TN = blocks[0] if len(blocks) == 1 else torch.cat(blocks)
    dtype = rewards_TN.dtype
    return Estimate(advantages_TN.to(dtype), (advantages_TN + values[:-1]).to(dtype))


def _advantages(delta_TN: Tensor, end_TN: Tensor | None, decay: float) -> Tensor:
    """The sums of `gae` within one block; `end`: where episodes end, None where the stream is never cut."""
    steps = torch.arange(len(delta_TN), device=delta_TN.device)
    lag_TT = steps[None, :] - steps[:, None]
    weight_TT = torch.where(lag_TT >= 0, decay ** lag_TT.clamp_min(0).double(), 0.0)
    if end_TN is None:
        return weight_TT @ delta_TN
    episode_NT = (end_TN.cumsum(0) - end_TN).T
    weight_NTT = weight_TT * (episode_NT[:, :, None] == episode_NT[:, None, :])
    return (weight_NTT @ delta_TN.T[:, :, None])[:, :, 0].T


def standardise(advantages_TN: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Advantages with mean 0 and std 1, from the moments of a whole rollout, that of all ranks."""
    return ((advantages_TN - mean) / (var.sqrt() + MIN_STD)).to(advantages_TN.dtype)


def combine(
    config: Config,
    rewards_ext_TN: Tensor,
    rewards_int_TN: Tensor,
    values_ext_TpN: Tensor,
    values_int_TpN: Tensor,
    done_TN: Tensor,
    truncation_bootstrap_TN: Tensor,
    ranks: Ranks = SINGLE_PROCESS,
) -> Targets:
    """A = c_E A_E + c_I A_I with one horizon and one discount per stream; or one stream of the summed rewards; or the
    extrinsic stream alone, without a bonus.

    The truncation bootstrap continues the extrinsic stream, or the one of both, at a time limit. It is a value, not a
    reward: no coefficient multiplies it.
    """
    lam = config.gae_lambda
    if config.value_heads == 1:
        rewards_TN = config.ext_coef * rewards_ext_TN + config.int_coef * rewards_int_TN + truncation_bootstrap_TN
        one = gae(rewards_TN, values_ext_TpN, done_TN, config.gamma_ext, lam, episodic=True)
        return Targets(one.advantages_TN, one.returns_TN, torch.zeros_like(one.returns_TN))
    ext = gae(rewards_ext_TN + truncation_bootstrap_TN, values_ext_TpN, done_TN, config.gamma_ext, lam, episodic=True)
    if not config.has_int_stream:
        return Targets(config.ext_coef * ext.advantages_TN, ext.returns_TN, torch.zeros_like(ext.returns_TN))
    int_ = gae(rewards_int_TN, values_int_TpN, done_TN, config.gamma_int, lam, episodic=config.episodic_int)
    int_coef: float | Tensor = config.int_coef
    if config.min_bonus_share:
        var_ext, var_int = (ranks.all_moments(*batch_moments(x.returns_TN.flatten()))[1] for x in (ext, int_))
        int_coef = raised_int_coef(config, var_ext.sqrt(), var_int.sqrt())
    advantages_TN = config.ext_coef * ext.advantages_TN + int_coef * int_.advantages_TN
    return Targets(advantages_TN, ext.returns_TN, int_.returns_TN)


def raised_int_coef(config: Config, std_ext: Tensor, std_int: Tensor) -> Tensor:
    """Weight c_I with which the bonus has at least `min_bonus_share` of the std of the returns,
    c_I s_I / (c_E s_E + c_I s_I). Never less than `int_coef`: nothing changes before rewards are found."""
    share = config.min_bonus_share
    least = share / (1 - share) * config.ext_coef * std_ext / (std_int + MIN_STD)
    return least.clamp_min(config.int_coef).float()


def two_streams(
    rewards_ext: Any,
    rewards_int: Any,
    values_ext: Any,
    values_int: Any,
    dones: Any,
    *,
    truncated_values: Any = None,
    gamma_ext: float = 0.999,
    gamma_int: float = 0.99,
    gae_lambda: float = 0.95,
    ext_coef: float = 2.0,
    int_coef: float = 1.0,
    episodic_int: bool = False,
) -> Targets:
    """Advantages of the paper's two streams, for agents of your own: arrays or tensors (T, N).

    Returns the combined advantages and the returns of both value heads, in the kind of `rewards_ext`.

    - `rewards_ext`, `rewards_int`: rewards of the stream, (T, N).
    - `values_ext`, `values_int`: values of the stream, (T + 1, N); the last row is the value of the last observation.
    - `dones`: the episode ended with this step.
    - `truncated_values`: V_ext(final observation) where a time limit ended the episode, 0 elsewhere.
    - `gamma_ext`, `gamma_int`: discount of the stream.
    - `gae_lambda`: λ of the generalised advantage estimation.
    - `ext_coef`, `int_coef`: weight of the stream's advantages in their sum.
    - `episodic_int`: the intrinsic return ends with the episode; in the paper it does not.
    """
    given = (rewards_ext, rewards_int, values_ext, values_int, dones)
    rewards_TN, *rest = (torch.as_tensor(x) for x in given)
    device, shape = rewards_TN.device, rewards_TN.shape
    rewards_int_TN, values_ext_TpN, values_int_TpN, done_TN = (x.to(device) for x in rest)
    longer = (shape[0] + 1, *shape[1:])
    shapes = dict(
        zip(("rewards_int", "values_ext", "values_int", "dones"), (shape, longer, longer, shape), strict=True)
    )
    for (name, wanted), x in zip(shapes.items(), rest, strict=True):
        if x.shape != wanted:
            raise UserError(f"{name} has the shape {tuple(x.shape)} instead of {tuple(wanted)}")
    bootstrap_TN = torch.zeros_like(rewards_TN, dtype=torch.float32)
    if truncated_values is not None:
        bootstrap_TN = gamma_ext * torch.as_tensor(truncated_values).to(device).float().reshape(shape)
    config = Config(
        gamma_ext=gamma_ext,
        gamma_int=gamma_int,
        gae_lambda=gae_lambda,
        ext_coef=ext_coef,
        int_coef=int_coef,
        episodic_int=episodic_int,
    )
    check_ranges(config, "")
    rewards = rewards_TN.float(), rewards_int_TN.float()
    targets = combine(config, *rewards, values_ext_TpN, values_int_TpN, done_TN.bool(), bootstrap_TN)
    return targets if isinstance(rewards_ext, Tensor) else Targets._make(x.numpy() for x in targets)
