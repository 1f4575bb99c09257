"""What the metrics say about the bonus of a rollout."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rnd.config import Config
from rnd.data.normalize import ReturnScaler
from rnd.distributed import Ranks
from rnd.training.returns import Targets


class BonusStats(NamedTuple):
    """Scalars of one rollout, on the device. The last two are no means; ranks average all the others."""

    raw: Tensor
    scaled: Tensor
    discounted_sum: Tensor
    """Mean over the environments of the running sum of raw bonuses."""
    raw_square: Tensor
    ext_mean: Tensor
    """Returns of the extrinsic and of the intrinsic stream."""
    ext_square: Tensor
    int_mean: Tensor
    int_square: Tensor
    maximum: Tensor
    scale: Tensor


def measure(bonus_TN: Tensor, intrinsic_TN: Tensor, targets: Targets, scaler: ReturnScaler) -> BonusStats:
    """Statistics of raw bonuses, of the rewards they became, and of the returns. No host synchronisation."""
    ext_TN, int_TN = targets.returns_ext_TN.double(), targets.returns_int_TN.double()
    return BonusStats(
        raw=bonus_TN.mean().double(),
        scaled=intrinsic_TN.mean().double(),
        discounted_sum=scaler.mean_return,
        raw_square=bonus_TN.double().square().mean(),
        ext_mean=ext_TN.mean(),
        ext_square=ext_TN.square().mean(),
        int_mean=int_TN.mean(),
        int_square=int_TN.square().mean(),
        maximum=bonus_TN.max().double(),
        scale=scaler.divisor,
    )


def bonus_metrics(stats: BonusStats, config: Config, ranks: Ranks) -> dict[str, float]:
    """Columns of the metrics, over all ranks. `bonus_spread` is the std of the raw bonus over its mean; `bonus_share`
    the intrinsic part of the std of the returns, each weighted by its coefficient."""
    ranks.all_mean_(stats[:-2])
    values = dict(zip(BonusStats._fields, torch.stack(stats).tolist(), strict=True))  # one device-to-host copy
    spread = std(values["raw"], values["raw_square"])
    ext = config.ext_coef * std(values["ext_mean"], values["ext_square"])
    int_ = config.int_coef * std(values["int_mean"], values["int_square"])
    return {
        "bonus_raw": values["raw"],
        "bonus_max": ranks.all_max(values["maximum"])[0],
        "bonus_scaled": values["scaled"],
        "bonus_scale": values["scale"],
        "return_int": values["discounted_sum"] / values["scale"],
        "bonus_spread": spread / values["raw"] if values["raw"] else 0.0,
        "bonus_share": max(int_ / (ext + int_), config.min_bonus_share) if int_ else 0.0,
    }


def std(mean: float, mean_square: float) -> float:
    return math.sqrt(max(mean_square - mean**2, 0.0))
