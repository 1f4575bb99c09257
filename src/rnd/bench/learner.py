"""rnd bench learner: the update of one rollout alone, repeated on the same data.

Everything of an iteration but acting: bonus, scaling, returns, statistics, and epochs of minibatches. The frames are
synthetic, so no emulator is needed.
"""

from __future__ import annotations

import gc
import json
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

import torch
from rich.console import Console
from rich.table import Table

from rnd.bench.options import BenchOptions
from rnd.bench.progress import Progress
from rnd.bench.synthetic import SyntheticAtari
from rnd.config import Config
from rnd.config.ranges import PositiveInt
from rnd.device.graphs import WARM_UP
from rnd.envs.registry import on_gpu
from rnd.training.trainer import Trainer


@dataclass(frozen=True)
class Options(BenchOptions):
    """What is measured."""

    precision: tuple[Literal["tf32", "float32", "bf16"], ...] = ("tf32", "bf16")
    """Matrix arithmetic on CUDA; the CPU always computes in float32."""
    bonus: tuple[str, ...] = ("rnd",)
    """Intrinsic rewards, one after the other."""
    plain: bool = False
    """Also measure without graphs and compilation."""
    repeats: PositiveInt | None = None
    """Timed updates; the median counts. Default: 8, on a CPU 2."""


@dataclass(frozen=True)
class LearnerSpeed:
    """One measurement."""

    bonus: str
    num_envs: int
    precision: str
    fast: bool
    milliseconds: float
    """Median over the timed updates."""
    frames_per_second: float
    peak_gigabytes: float
    """Peak of the device memory that PyTorch reserved, its cache included; 0 on the CPU."""


def run(options: Options, console: Console) -> int:
    """The whole bench; the exit code."""
    sizes = options.num_envs or ((128, 1024) if on_gpu(options.device) else (16,))
    paths = (True, False) if options.plain else (True,)
    configs = [
        options.config(num_envs, precision=precision, fast=fast, bonus=bonus)
        for num_envs, precision, fast, bonus in product(sizes, options.precision, paths, options.bonus)
    ]
    progress = Progress(len(configs))
    results = [progress(title(c), partial(measure, c, options.repeats), in_milliseconds) for c in configs]
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return 0
    columns = "bonus", "environments", "arithmetic", "path", "ms per update", "frames/s", "peak GB"
    table = Table(*columns, title="learner alone")
    for r in results:
        path = "fast" if r.fast else "plain"
        values = f"{r.milliseconds:,.1f}", f"{r.frames_per_second:,.0f}", f"{r.peak_gigabytes:.1f}"
        table.add_row(r.bonus, str(r.num_envs), r.precision, path, *values)
    console.print(table)
    return 0


def title(config: Config) -> str:
    return f"{config.bonus}, {config.env.num_envs} environments, {config.precision}{'' if config.fast else ', plain'}"


def in_milliseconds(speed: LearnerSpeed) -> str:
    return f"{speed.milliseconds:,.1f} ms per update"


def measure(config: Config, repeats: int | None = None) -> LearnerSpeed:
    """Time the update of one rollout, again and again on the same data."""
    gpu = on_gpu(config.device)
    repeats = repeats or (8 if gpu else 2)
    warm_up = WARM_UP + 1 if gpu else 1  # a GPU chooses kernels and captures graphs first
    if torch.cuda.is_available():
        gc.collect()  # a trainer before this one
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    env = SyntheticAtari(config.env.num_envs, frame_skip=config.env.frame_skip)
    trainer = Trainer(replace(config, overlap=False), env)
    trainer.start()
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
    sizes = config.env.num_envs, config.precision, config.fast
    return LearnerSpeed(config.bonus, *sizes, seconds * 1e3, frames / seconds, peak)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
