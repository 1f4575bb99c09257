"""The noisy television in a short version: which bonus stays in front of it, and what is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from rnd.config.presets import preset
from rnd.data.transitions import Transitions
from rnd.envs.noisy_tv import NoisyTV
from rnd.foundation.errors import UserError
from rnd.paper import noisy_tv
from rnd.paper.noisy_tv import GAME, Options, TvRow


def test_share_and_bonus_at_the_television_by_hand():
    env = NoisyTV(1)
    tv, elsewhere = np.flatnonzero(env.tv)[0], np.flatnonzero(~env.tv & ~env.wall)[0]
    obs = torch.zeros(4, env.spec.observation.shape[0])
    obs[torch.arange(4), torch.tensor([tv, elsewhere, elsewhere, elsewhere])] = 1
    moves = Transitions.pairs(obs, torch.zeros(4, dtype=torch.int64), obs)
    assert noisy_tv.at_tv(moves, torch.tensor([[5.0, 1.0, 2.0, 3.0]])) == (0.25, 5.0, 2.0)


def test_the_last_quarter_by_hand():
    rows = [
        TvRow("rnd", 1, frames, share, 0.0, 0.0) for frames, share in ((100, 0.9), (200, 0.5), (300, 0.4), (400, 0.2))
    ]
    assert noisy_tv.last_quarter(rows, "rnd") == pytest.approx(0.2)


@pytest.mark.long
def test_the_dynamics_bonus_stays_in_front_of_the_television_and_rnd_leaves():
    """One seed and two thirds of the recorded experiment (docs/bonuses.md)."""
    shares = {}
    for name in noisy_tv.BONUSES:
        rows = list(
            noisy_tv.measure(replace(preset(GAME), bonus=name, seed=1, frames=130_000, device="cpu", threads=1))
        )
        shares[name] = noisy_tv.last_quarter(rows, name)
        assert rows[-1].bonus_at_tv < rows[0].bonus_at_tv
    assert shares["dynamics"] >= 3 * shares["rnd"]


def test_pictures_and_numbers_are_written(tmp_path):
    options = Options(out=str(tmp_path), seeds=1, frames=9000)
    noisy_tv.run(options, Console(quiet=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["noisy-tv.csv", "noisy-tv.png", "noisy-tv.svg"]
    assert len((tmp_path / "noisy-tv.csv").read_text().splitlines()) == 1 + 2 * 3


def test_wrong_options_are_refused():
    with pytest.raises(UserError, match="--seeds must be greater than 0"):
        noisy_tv.run(Options(seeds=0), Console(quiet=True))
