"""DeepSea 20 in Stable-Baselines3: its PPO alone, with the wrapper, and RNDPPO.

    python benchmarks/sb3_deep_sea.py

All have the same budget, environments, network, rollouts, epochs and learning rate. Trains every seed for the whole
budget, and writes a table.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import rnd
from rnd.cli import parse
from rnd.foundation.tables import csv_text
from rnd.plugins.sb3 import RNDPPO, IntrinsicRewardCallback, VecIntrinsicReward

BONUS = {"features": 64, "hidden": 128, "keep": 1.0, "lr": 1e-3}
SHARED: dict[str, Any] = {"learning_rate": 1e-3, "n_steps": 128, "batch_size": 1024, "n_epochs": 4, "device": "cpu"}
"""Values of all methods; everything else is the algorithm's own default."""


@dataclass(frozen=True)
class Options:
    """Which runs."""

    size: int = 20
    """Side of the square."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """One run each."""
    frames: int = 300_000
    """Environment steps per run."""
    envs: int = 32
    """Environments."""
    methods: tuple[str, ...] = ("RNDPPO", "PPO + VecIntrinsicReward", "PPO")
    """What is compared."""
    out: str = "benchmarks/results/sb3_deep_sea.csv"
    """The table."""


class Result(NamedTuple):
    """One run."""

    method: str
    seed: int
    solved_at: int | None
    """Environment steps after which 90% of the last 100 episodes had found the treasure."""
    best_success: float
    """The highest share of the last 100 episodes."""
    last_success: float
    frames: int
    seconds: float


class Success(BaseCallback):
    """The share of the last 100 episodes that found the treasure, after every rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.best, self.last = 0.0, 0.0
        self.solved_at: int | None = None

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        self.last = float(np.mean([r > 0.5 for r in returns])) if len(returns) == 100 else 0.0
        self.best = max(self.best, self.last)
        if self.last >= 0.9 and self.solved_at is None:
            self.solved_at = self.num_timesteps


def train(method: str, seed: int, options: Options) -> Result:
    begun = time.monotonic()
    make = partial(gymnasium.make, f"rnd/DeepSea-{options.size}", mapping_seed=seed)
    venv: Any = DummyVecEnv([lambda: Monitor(make())] * options.envs)
    success = Success()
    callbacks: list[BaseCallback] = [success]
    if method == "RNDPPO":
        model: PPO = RNDPPO("MlpPolicy", venv, gamma=0.99, bonus_kwargs=BONUS, seed=seed, **SHARED)
    else:
        if method != "PPO":
            bonus = rnd.Bonus("rnd", venv.observation_space, num_envs=options.envs, seed=seed, device="cpu", **BONUS)
            venv = VecIntrinsicReward(venv, bonus)
            callbacks.append(IntrinsicRewardCallback())
        model = PPO("MlpPolicy", venv, seed=seed, **SHARED)
    model.learn(options.frames, callback=callbacks)
    seconds = round(time.monotonic() - begun, 1)
    return Result(method, seed, success.solved_at, success.best, success.last, model.num_timesteps, seconds)


def main() -> None:
    options = parse(Options, sys.argv[1:], prog="sb3_deep_sea.py", description=str(__doc__))
    torch.set_num_threads(1)
    results = []
    for method in options.methods:
        for seed in options.seeds:
            results.append(train(method, seed, options))
            print(results[-1], flush=True)
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(csv_text(Result._fields, results))
    print(options.out)


if __name__ == "__main__":
    main()
