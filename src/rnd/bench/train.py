"""rnd bench train: whole iterations beside their limits, in one run.

Three measurements on the same machine within a minute: the environments alone (random actions), the learner alone (the
same rollout again and again), and training itself, synchronous and overlapped, with the shares of its wall time.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from rnd import envs
from rnd.bench.learner import measure as measure_learner
from rnd.bench.learner import on_gpu
from rnd.config import Config
from rnd.envs.interface import VectorEnv
from rnd.presets import preset
from rnd.rollout import random_actions
from rnd.run import timing
from rnd.train import Trainer

SHARES = ("emulation", "inference", "learning", "other")


@dataclass(frozen=True)
class Options:
    """What is measured."""

    game: str = "montezuma"
    """Atari game."""
    num_envs: tuple[int, ...] = ()
    """Numbers of environments; default: 128, on a CPU 16."""
    backend: Literal["auto", "native", "ale"] = "auto"
    """Atari emulator."""
    policy: Literal["cnn", "gru"] = "cnn"
    """Policy network."""
    precision: Literal["tf32", "float32", "bf16"] = "tf32"
    """Matrix arithmetic on CUDA."""
    rollout_steps: int = 128
    """Steps of a rollout."""
    iterations: int | None = None
    """Timed iterations of training; the median counts. Default: 12, on a CPU 3."""
    workers: int | None = None
    """Worker processes or emulator threads; default: all cores."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: bool = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class TrainSpeed:
    """Training at one size beside its limits, frames a second."""

    num_envs: int
    backend: str
    emulator_alone: float
    learner_alone: float
    synchronous: float
    overlapped: float
    shares: dict[str, float]
    """Of the synchronous wall time."""
    peak_gigabytes: float

    @property
    def limit(self) -> float:
        """What overlapping cannot pass: the slower of the two alone."""
        return min(self.emulator_alone, self.learner_alone)


def run(options: Options, console: Console) -> int:
    """The whole bench; the exit code."""
    gpu = on_gpu(options.device)
    sizes = options.num_envs or ((128,) if gpu else (16,))
    results = [measure(options, num_envs, options.iterations or (12 if gpu else 3)) for num_envs in sizes]
    if options.json:
        print(json.dumps([asdict(result) | {"limit": result.limit} for result in results], indent=2))
        return 0
    table = Table("environments", "emulator alone", "learner alone", "synchronous", "overlapped", "of its limit",
                  title=f"frames/s, {results[0].backend}")  # fmt: skip
    shares = Table("environments", *SHARES, title="shares of the synchronous wall time")
    for r in results:
        speeds = r.emulator_alone, r.learner_alone, r.synchronous, r.overlapped
        table.add_row(str(r.num_envs), *(f"{speed:,.0f}" for speed in speeds), f"{r.overlapped / r.limit:.0%}")
        shares.add_row(str(r.num_envs), *(f"{r.shares[name]:.1%}" for name in SHARES))
    console.print(table)
    console.print(shares)
    return 0


def measure(options: Options, num_envs: int, iterations: int) -> TrainSpeed:
    config = bench_config(options, num_envs)
    with closing(envs.make(config)) as env:
        backend, emulator = env.spec.backend, emulator_alone(env, config)
    learner = measure_learner(config)
    synchronous, shares = training(config, iterations)
    overlapped, _ = training(replace(config, overlap=True), iterations)
    return TrainSpeed(
        num_envs, backend, emulator, learner.frames_per_second, synchronous, overlapped, shares, learner.peak_gigabytes
    )


def bench_config(options: Options, num_envs: int) -> Config:
    paper = preset(options.game)
    env = replace(paper.env, num_envs=num_envs, backend=options.backend, workers=options.workers)
    return replace(
        paper,
        env=env,
        policy=options.policy,
        precision=options.precision,
        rollout_steps=options.rollout_steps,
        device=options.device,
    )


def emulator_alone(env: VectorEnv, config: Config, rollouts: int = 3) -> float:
    """Frames a second with random actions drawn beforehand, in the trainer's groups."""
    random = np.random.default_rng(0)
    actions = [random_actions(env, random) for _ in range(config.rollout_steps)]
    env.reset()
    speeds = []
    for _ in range(rollouts + 1):
        begun = time.perf_counter()
        for t, chosen in enumerate(actions):
            for g, rows in enumerate(env.groups):
                if t > 0:
                    env.recv(g)
                env.send(g, chosen[rows])
        for g in range(len(env.groups)):
            env.recv(g)
        speeds.append(config.frames_per_rollout / (time.perf_counter() - begun))
    return statistics.median(speeds[1:])


def training(config: Config, iterations: int) -> tuple[float, dict[str, float]]:
    """Median frames a second of whole iterations, and where their wall time went."""
    warm_up = 4 if on_gpu(config.device) else 1
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        trainer.collector.start()
        laps = list(timed_rows(trainer, warm_up + iterations))[warm_up:]
        trainer.collector.close()
    seconds = statistics.median(lap["seconds"] for lap in laps)
    total = sum(lap["seconds"] for lap in laps)
    shares = {name: sum(lap[name] for lap in laps) / total for name in SHARES}
    return config.frames_per_rollout / seconds, shares


def timed_rows(trainer: Trainer, iterations: int) -> Iterator[dict[str, float]]:
    """The timing row of every iteration."""
    begun = time.perf_counter()
    for _, _ in zip(range(iterations), trainer.train(), strict=False):
        now = time.perf_counter()
        row = timing(trainer, now - begun)
        begun = now
        yield {name: float(value or 0.0) for name, value in row.items()}
