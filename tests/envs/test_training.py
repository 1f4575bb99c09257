"""The adapter trains: discrete, symbolic and continuous tasks, through the same trainer."""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing

import pytest

from rnd import envs
from rnd.config import Config
from rnd.config.presets import preset
from rnd.training.trainer import Trainer


def train(config: Config) -> list[dict]:
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        for _ in trainer.random_start():
            pass
        trainer.start()
        return list(trainer.train())


def small(env_id: str, frames: int, **changes: object) -> Config:
    config = preset(env_id)
    env = dataclasses.replace(config.env, num_envs=8, workers=changes.pop("workers", None))
    return dataclasses.replace(config, env=env, frames=frames, device="cpu", **changes)


def test_cartpole_learns():
    rows = train(small("CartPole-v1", 30_000, bonus="none", lr=1e-3, gamma_ext=0.98, rollout_steps=64, clip_range=0.2))
    assert rows[5]["return_mean"] < 60
    assert rows[-1]["return_mean"] > 120


@pytest.mark.parametrize("env_id", ["MiniGrid-Empty-5x5-v0", "Pendulum-v1"])
@pytest.mark.parametrize("workers", [0, 2])
def test_tasks_run_with_the_bonus(env_id, workers):
    rows = train(small(env_id, 4_096, workers=workers, rollout_steps=64))
    assert len(rows) == 8
    assert all(math.isfinite(value) for row in rows for value in row.values() if value is not None)


@pytest.mark.long
def test_pendulum_improves():
    rows = train(small("Pendulum-v1", 400_000, bonus="none", lr=1e-3, gamma_ext=0.9, rollout_steps=64, clip_range=0.2))
    assert rows[-1]["return_mean"] > rows[10]["return_mean"] + 300
