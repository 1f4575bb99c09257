"""`rnd bench learner`: the update of one rollout alone, again and again on the same data."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch

from rnd.bench.synthetic import SyntheticAtari
from rnd.config import Config
from rnd.train import Trainer


@dataclass(frozen=True)
class LearnerSpeed:
    """One measurement."""

    num_envs: int
    precision: str
    fast: bool
    milliseconds: float
    """Median over the timed updates."""
    frames_per_second: float
    peak_gigabytes: float
    """Device memory at its peak; 0 on the CPU."""


def measure(config: Config, warm_up: int = 3, repeats: int = 8) -> LearnerSpeed:
    """Everything of an iteration but acting: bonus, returns, statistics, epochs."""
    env = SyntheticAtari(config.env.num_envs, frame_skip=config.env.frame_skip)
    trainer = Trainer(replace(config, overlap=False), env)
    trainer.collector.start()
    rollout = trainer.collector.collect()
    times = []
    for _ in range(warm_up + repeats):
        synchronize(trainer.device)
        begun = time.perf_counter()
        trainer.learn(rollout)
        synchronize(trainer.device)
        times.append(time.perf_counter() - begun)
    seconds = sorted(times[warm_up:])[repeats // 2]
    peak = torch.cuda.max_memory_allocated() / 1e9 if trainer.device.type == "cuda" else 0.0
    frames = config.frames_per_rollout
    return LearnerSpeed(config.env.num_envs, config.precision, config.fast, seconds * 1e3, frames / seconds, peak)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
