"""What the Gymnasium wrapper costs beside the bare vector environment.

    python benchmarks/wrapper_overhead.py

Steps the same environments bare, with the wrapper frozen (score and scale), and with the wrapper learning (an update
every 128 steps), in turns, and prints the CPU time per step of all environments. Random actions; one thread.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rnd
from rnd.cli import parse
from rnd.envs.factories import gym_factory
from rnd.plugins.gymnasium import IntrinsicReward


@dataclass(frozen=True)
class Options:
    """What is measured."""

    envs: int = 16
    """Environments."""
    rounds: int = 3
    """Turns; the fastest counts."""
    steps: int = 256
    """Steps per turn in every environment."""
    env_ids: tuple[str, ...] = ("CartPole-v1", "MiniGrid-MultiRoom-N4-S5-v1", "ALE/MontezumaRevenge-v5")
    """What is stepped."""


def one_env(env_id: str) -> gymnasium.Env[Any, Any]:
    if not env_id.startswith("ALE/"):
        env: gymnasium.Env[Any, Any] = gym_factory(env_id)()
        return env
    import ale_py

    gymnasium.register_envs(ale_py)
    return gymnasium.wrappers.AtariPreprocessing(gymnasium.make(env_id, frameskip=1))


def per_step(venv: Any, steps: int) -> float:
    """CPU seconds per step of all environments."""
    begun = time.process_time()
    for _ in range(steps):
        venv.step(venv.action_space.sample())
    return (time.process_time() - begun) / steps


def main() -> None:
    options = parse(Options, sys.argv[1:], prog="wrapper_overhead.py", description=str(__doc__))
    torch.set_num_threads(1)
    for env_id in options.env_ids:
        makers = [lambda env_id=env_id: one_env(env_id)] * options.envs
        bare = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        bonus = rnd.Bonus("rnd", bare.single_observation_space, num_envs=options.envs, device="cpu")
        ways = {"bare": bare, "frozen": IntrinsicReward(bare, bonus), "learning": IntrinsicReward(bare, bonus)}
        bonus.update_every = 128
        ways["learning"].reset(seed=0)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, venv in ways.items():
                bonus.freeze(name == "frozen")
                times[name].append(per_step(venv, options.steps))
        best = {name: 1000 * float(np.min(values)) for name, values in times.items()}
        print(env_id, ", ".join(f"{name} {value:.2f} ms" for name, value in best.items()), flush=True)
        bare.close()


if __name__ == "__main__":
    main()
