"""The adapter trains: discrete, symbolic and continuous tasks, through the same trainer."""

from __future__ import annotations

import dataclasses
import math

import ale_py  # noqa: F401  registers its games
import gymnasium
import pytest

from helpers import train_rows
from rnd import envs
from rnd.config import Config
from rnd.config.presets import preset
from rnd.foundation.errors import UserError


def small(env_id: str, frames: int, **changes: object) -> Config:
    config = preset(env_id)
    env = dataclasses.replace(config.env, num_envs=8, workers=changes.pop("workers", None))
    return dataclasses.replace(config, env=env, frames=frames, device="cpu", **changes)


def test_cartpole_learns():
    rows = train_rows(
        small("CartPole-v1", 30_000, bonus="none", lr=1e-3, gamma_ext=0.98, rollout_steps=64, clip_range=0.2)
    )
    assert rows[5]["return_mean"] < 60
    assert rows[-1]["return_mean"] > 120


@pytest.mark.parametrize("env_id", ["MiniGrid-Empty-5x5-v0", "Pendulum-v1"])
@pytest.mark.parametrize("workers", [0, 2])
def test_tasks_run_with_the_bonus(env_id, workers):
    rows = train_rows(small(env_id, 4_096, workers=workers, rollout_steps=64))
    assert len(rows) == 8
    assert all(math.isfinite(value) for row in rows for value in row.values() if value is not None)


ATARI = [env_id for env_id in gymnasium.registry if env_id.startswith("ALE/") and env_id.endswith("-v5")]
ODD = ("ALE/Pacman-v5", "ALE/TicTacToe3D-v5")
"""A screen of 250 rows, and a name that no rule of capitals gives."""


@pytest.mark.parametrize("env_id", ODD)
def test_odd_atari_games_train(env_id):
    rows = train_rows(small(env_id, 256, workers=0, rollout_steps=8, epochs=1))
    assert rows[-1]["frames"] == 256


@pytest.mark.long
@pytest.mark.parametrize("env_id", ATARI)
def test_every_registered_atari_game_trains(env_id):
    rows = train_rows(small(env_id, 2_048, workers=0, rollout_steps=64, epochs=1))
    assert rows[-1]["frames"] == 2_048


@pytest.mark.parametrize("env_id", ["ALE/Joust-v5", "ALE/TicTacToe3d-v5", "ALE/-v5"])
def test_programs_that_ale_py_cannot_run_are_no_games(env_id):
    """ale-py ends the process on them."""
    with pytest.raises(UserError, match=f"unknown game {env_id}; nearest: "):
        envs.make(small(env_id, 2_048))


@pytest.mark.long
def test_pendulum_improves():
    rows = train_rows(
        small("Pendulum-v1", 400_000, bonus="none", lr=1e-3, gamma_ext=0.9, rollout_steps=64, clip_range=0.2)
    )
    assert rows[-1]["return_mean"] > rows[10]["return_mean"] + 300
