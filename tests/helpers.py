"""What tests of several packages share: small runs, their rows, and a console that prints nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from io import StringIO
from typing import Any

from rich.console import Console

from rnd import envs
from rnd.config import BonusOptions, Config
from rnd.config.presets import small
from rnd.envs.interface import VectorEnv
from rnd.models.policy.mlp import WidthOptions
from rnd.training.trainer import Trainer


def quiet() -> Console:
    return Console(file=StringIO(), width=400)


def tiny(env_id: str = "CartPole-v1", kind: str = "numbers", iterations: int = 6, **changes: Any) -> Config:
    """A run of a second: 8 environments, 32 steps, networks of width 16."""
    config = replace(small(env_id, kind), bonus="rnd")
    return replace(
        config,
        env=replace(config.env, num_envs=8),
        bonus_options=BonusOptions(features=16, hidden=16, keep=0.5, random_steps=32),
        rollout_steps=32,
        policy_options=WidthOptions(16),
        frames=8 * 32 * iterations,
        **changes,
    )


def on_device(env_id: str, num_envs: int = 8, iterations: int = 6, **changes: Any) -> Config:
    """A run of copies on the device: 16 steps, networks of width 8 and 16."""
    config = replace(small(env_id), bonus="rnd")
    sizes = {"bonus_options": BonusOptions(features=8, hidden=8, random_steps=16), "policy_options": WidthOptions(16)}
    base = {"rollout_steps": 16, "minibatches": 2, "epochs": 2, "frames": iterations * 16 * num_envs, "device": "cpu"}
    return replace(config, env=replace(config.env, num_envs=num_envs), **sizes | base | {"seed": 5} | changes)


def started(config: Config, env: VectorEnv) -> Trainer:
    """A trainer that is ready to train."""
    trainer = Trainer(config, env)
    for _ in trainer.random_start():
        pass
    trainer.start()
    return trainer


def train_rows(config: Config) -> list[dict[str, Any]]:
    """The rows of a whole run, without a run folder."""
    with closing(envs.make(config)) as env:
        return list(started(config, env).train())


@contextmanager
def resumed_exactly(config: Config) -> Iterator[tuple[list[dict[str, Any]], Trainer, Trainer]]:
    """The rows of a run after the second, its trainer, and another that continued it from there to the same rows."""
    with closing(envs.make(config)) as env, closing(envs.make(config)) as other:
        trainer = started(config, env)
        training = trainer.train()
        next(training), next(training)
        saved = copy.deepcopy(trainer.state_dict())
        rows = list(training)
        again = Trainer(config, other)
        assert again.load_state_dict(saved)
        assert list(again.train()) == rows
        yield rows, trainer, again
