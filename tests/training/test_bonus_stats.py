"""The metrics of the bonus, against numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers import tiny
from rnd.data.normalize import ReturnScaler
from rnd.distributed import SINGLE_PROCESS
from rnd.training.bonus_stats import bonus_metrics, measure
from rnd.training.returns import Targets

T, N = 5, 3


def metrics(bonus_TN, ext_TN, int_TN, **changes):
    scaler = ReturnScaler(N, 0.99)
    intrinsic_TN = scaler(bonus_TN)
    targets = Targets(torch.zeros(T, N), ext_TN, int_TN)
    config = replace(tiny(), ext_coef=2.0, int_coef=0.5, **changes)
    return bonus_metrics(measure(bonus_TN, intrinsic_TN, targets, scaler), config, SINGLE_PROCESS), scaler


def test_every_column_is_its_formula():
    generator = torch.Generator().manual_seed(3)
    bonus_TN = torch.rand(T, N, generator=generator) + 0.1
    ext_TN, int_TN = (torch.randn(T, N, generator=generator) * scale + shift for scale, shift in ((3, 1), (7, -2)))
    found, scaler = metrics(bonus_TN, ext_TN, int_TN)
    raw, ext, int_ = (x.double().numpy() for x in (bonus_TN, ext_TN, int_TN))
    sums = np.zeros(N)
    for row in raw:
        sums = 0.99 * sums + row
    scale = float(scaler.moments.std)
    assert found == pytest.approx(
        {
            "bonus_raw": raw.mean(),
            "bonus_max": raw.max(),
            "bonus_scaled": (raw / scale).mean(),
            "bonus_scale": scale,
            "return_int": sums.mean() / scale,
            "bonus_spread": raw.std() / raw.mean(),
            "bonus_share": 0.5 * int_.std() / (2.0 * ext.std() + 0.5 * int_.std()),
        },
        rel=1e-6,
    )


def test_without_a_bonus_its_spread_and_share_are_zero():
    zeros = torch.zeros(T, N)
    found, _ = metrics(zeros, torch.randn(T, N), zeros)
    assert found["bonus_spread"] == found["bonus_share"] == found["bonus_raw"] == 0.0


def test_the_share_is_at_least_the_one_that_the_weight_is_raised_to():
    bonus_TN, ext_TN = torch.rand(T, N) + 0.1, 100 * torch.randn(T, N)
    assert metrics(bonus_TN, ext_TN, torch.randn(T, N), min_bonus_share=0.1)[0]["bonus_share"] == 0.1
