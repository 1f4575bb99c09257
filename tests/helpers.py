"""What tests of several packages share: small runs, their rows, and a console that prints nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console

from rnd import envs
from rnd.config import BonusOptions, Config
from rnd.config.presets import small
from rnd.models.policy.mlp import WidthOptions
from rnd.training.trainer import Trainer


def quiet() -> Console:
    return Console(file=StringIO(), width=400)


def tiny(env_id: str = "CartPole-v1", kind: str = "numbers", iterations: int = 6, **changes: Any) -> Config:
    """A run of a second: 8 environments, 32 steps, networks of width 16."""
    config = small(env_id, kind)
    return replace(
        config,
        env=replace(config.env, num_envs=8),
        bonus_options=BonusOptions(features=16, hidden=16, keep=0.5, random_steps=32),
        rollout_steps=32,
        policy_options=WidthOptions(16),
        frames=8 * 32 * iterations,
        **changes,
    )


def train_rows(config: Config) -> list[dict[str, Any]]:
    """The rows of a whole run, without a run folder."""
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        for _ in trainer.random_start():
            pass
        trainer.start()
        return list(trainer.train())
