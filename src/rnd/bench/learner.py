"""rnd bench learner: the update of one rollout alone, again and again on the same data.

Everything of an iteration but acting: bonus, scaling, returns, statistics, and epochs of minibatches. The frames are
synthetic, so no emulator is needed.
"""

from __future__ import annotations

import gc
import json
import time
from dataclasses import asdict, dataclass, replace
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table

from rnd.bench.synthetic import SyntheticAtari
from rnd.config import Config, positive
from rnd.envs.registry import on_gpu
from rnd.fast import WARM_UP
from rnd.presets import preset
from rnd.train import Trainer


@dataclass(frozen=True)
class Options:
    """What is measured."""

    num_envs: tuple[int, ...] = ()
    """Numbers of environments; the predictor keeps 32/N of the samples. Default: 128 and 1024, on a CPU 16."""
    precision: tuple[Literal["tf32", "float32", "bf16"], ...] = ("tf32", "bf16")
    """Matrix arithmetic on CUDA; the CPU always computes in float32."""
    policy: Literal["cnn", "gru"] = "cnn"
    """Policy network."""
    bonus: str = "rnd"
    """Intrinsic reward."""
    plain: bool = False
    """Also measure the plain path, without graphs and compilation."""
    rollout_steps: int = 128
    """Steps of a rollout."""
    repeats: int | None = None
    """Timed updates; the median counts. Default: 8, on a CPU 2."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: bool = False
    """Print JSON instead of a table."""


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
    """Device memory that PyTorch held at its peak, what lay idle in its cache included; 0 on the CPU."""


def run(options: Options, console: Console) -> int:
    """The whole bench; the exit code."""
    positive(options, "repeats")
    results = []
    for num_envs in options.num_envs or ((128, 1024) if on_gpu(options.device) else (16,)):
        for precision in options.precision:
            for fast in (True, False) if options.plain else (True,):
                config = bench_config(options, num_envs, precision, fast)
                results.append(measure(config, repeats=options.repeats))
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return 0
    table = Table("environments", "arithmetic", "path", "ms an update", "frames/s", "peak GB", title="learner alone")
    for r in results:
        path = "fast" if r.fast else "plain"
        figures = f"{r.milliseconds:,.1f}", f"{r.frames_per_second:,.0f}", f"{r.peak_gigabytes:.1f}"
        table.add_row(str(r.num_envs), r.precision, path, *figures)
    console.print(table)
    return 0


def bench_config(options: Options, num_envs: int, precision: Literal["tf32", "float32", "bf16"], fast: bool) -> Config:
    """The paper's run, with what the options change."""
    paper = preset("montezuma")
    config = replace(
        paper,
        env=replace(paper.env, num_envs=num_envs),
        precision=precision,
        fast=fast,
        policy=options.policy,
        bonus=options.bonus,
        rollout_steps=options.rollout_steps,
        device=options.device,
    )
    config.validate()
    return config


def measure(config: Config, repeats: int | None = None) -> LearnerSpeed:
    """Everything of an iteration but acting: bonus, returns, statistics, epochs."""
    gpu = on_gpu(config.device)
    repeats = repeats or (8 if gpu else 2)
    warm_up = WARM_UP + 1 if gpu else 1  # a GPU chooses kernels and captures graphs first
    if torch.cuda.is_available():
        gc.collect()  # a trainer before this one
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
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
    peak = torch.cuda.max_memory_reserved() / 1e9 if trainer.device.type == "cuda" else 0.0
    frames = config.frames_per_rollout
    return LearnerSpeed(config.env.num_envs, config.precision, config.fast, seconds * 1e3, frames / seconds, peak)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
