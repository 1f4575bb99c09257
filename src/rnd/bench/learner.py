"""rnd bench learner: the update of one rollout alone, repeated on the same data.

Everything of an iteration but acting: bonus, scaling, returns, statistics, and epochs of minibatches. The frames are
synthetic, so no emulator is needed.
"""

from __future__ import annotations

import gc
import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rnd.bench.kernels import Profile, floor_of, median_time, profile, rates_of, samples_of, update_of
from rnd.bench.options import BenchOptions
from rnd.bench.progress import Progress
from rnd.bench.synthetic import SyntheticAtari
from rnd.config import Config
from rnd.config.ranges import PositiveInt
from rnd.device.graphs import WARM_UP
from rnd.envs.registry import on_gpu
from rnd.training.trainer import Trainer

KERNELS = 25
"""Rows of a profile."""


@dataclass(frozen=True)
class Options(BenchOptions):
    """What is measured."""

    policy: tuple[str, ...] = ("cnn", "gru")
    """Policy networks, one after the other."""
    precision: tuple[Literal["tf32", "float32", "bf16"], ...] = ("tf32",)
    """Matrix arithmetic on CUDA; the CPU always computes in float32."""
    bonus: tuple[str, ...] = ("rnd",)
    """Intrinsic rewards, one after the other."""
    minibatches: tuple[PositiveInt, ...] = ()
    """Minibatches per epoch, one after the other. Default: 4 8 16 32 64, which is 4,096 to 256 samples per step of 128
    environments; on a CPU the paper's 4."""
    plain: bool = False
    """Also measure without graphs and compilation."""
    repeats: PositiveInt | None = None
    """Timed updates; the median counts. Default: 8, on a CPU 2."""
    profile: bool = False
    """On a GPU: also the kernels of an optimiser step, and the gaps between them."""


@dataclass(frozen=True)
class LearnerSpeed:
    """One measurement."""

    bonus: str
    policy: str
    num_envs: int
    precision: str
    fast: bool
    samples: int
    """Per minibatch."""
    milliseconds: float
    """Median over the timed updates."""
    step_milliseconds: float
    """Time of one optimiser step: that of the epochs alone, over their steps."""
    floor_milliseconds: float
    """What its operations and bytes take at the full rates of the device (`rnd.bench.kernels.Floor`)."""
    frames_per_second: float
    peak_gigabytes: float
    """Peak of the device memory that PyTorch reserved, its cache included; 0 on the CPU."""
    profile: Profile | None = None


def run(options: Options, console: Console) -> int:
    """The whole bench; the exit code."""
    configs, with_profile = configs_of(options), options.profile and on_gpu(options.device)
    progress = Progress(len(configs))
    results = [progress(title(c), partial(measure, c, options.repeats, with_profile), in_milliseconds) for c in configs]
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return 0
    console.print(speed_table(results))
    for r in results:
        if r.profile is not None:
            console.print(profile_table(r, r.profile))
    return 0


def configs_of(options: Options) -> list[Config]:
    """What is measured, in the order of the rows."""
    gpu = on_gpu(options.device)
    choices: dict[str, tuple[Any, ...]] = {
        "num_envs": options.num_envs or ((128,) if gpu else (16,)),
        "precision": options.precision,
        "fast": (True, False) if options.plain else (True,),
        "bonus": options.bonus,
        "policy": options.policy,
        "minibatches": options.minibatches or ((4, 8, 16, 32, 64) if gpu else (4,)),
    }
    return [options.config(**dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


def speed_table(results: list[LearnerSpeed]) -> Table:
    """A row per measurement. What they have in common is in the title."""
    named = {
        "environments": [f"{r.num_envs} environments" for r in results],
        "arithmetic": [r.precision for r in results],
        "path": ["fast" if r.fast else "plain" for r in results],
        "bonus": [r.bonus for r in results],
        "policy": [r.policy for r in results],
    }
    common = [values[0] for values in named.values() if len({*values}) == 1]
    columns = {name: values for name, values in named.items() if len({*values}) > 1} | {
        "samples": [f"{r.samples:,}" for r in results],
        "ms/step": [f"{r.step_milliseconds:,.3f}" for r in results],
        "floor": [f"{r.floor_milliseconds:,.3f}" for r in results],
        "ms/update": [f"{r.milliseconds:,.1f}" for r in results],
        "frames/s": [f"{r.frames_per_second:,.0f}" for r in results],
        "peak GB": [f"{r.peak_gigabytes:.1f}" for r in results],
    }
    table = Table(*columns, title=", ".join(["learner alone", *common]))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def profile_table(speed: LearnerSpeed, found: Profile) -> Table:
    """The longest kernels of a step, and the whole."""
    heading = (
        f"{speed.policy}, {speed.samples:,} samples: one step of {speed.step_milliseconds * 1e3:,.0f} microseconds"
    )
    numbers = Column("launches", no_wrap=True), Column("microseconds", no_wrap=True)
    table = Table("kernel", *numbers, title=heading)
    for kernel in found.by_name[:KERNELS]:
        name = Text(kernel.name, no_wrap=True, overflow="ellipsis")  # names of templates are longer than a line
        table.add_row(name, f"{kernel.launches:.1f}", f"{kernel.microseconds:.1f}")
    table.add_section()
    table.add_row("all", f"{found.kernels:.1f}", f"{found.in_kernels:.1f}")
    table.add_row("time in which one ran", "", f"{found.busy:.1f}")
    table.add_row("time in which none ran", "", f"{found.gaps:.1f}")
    return table


def title(config: Config) -> str:
    sizes = f"{config.env.num_envs} environments, {samples_of(config):,} samples per step"
    path = "" if config.fast else ", plain"
    return f"{config.bonus}, {config.policy}, {sizes}, {config.precision}{path}"


def in_milliseconds(speed: LearnerSpeed) -> str:
    return f"{speed.milliseconds:,.1f} ms per update"


def measure(config: Config, repeats: int | None = None, with_profile: bool = False) -> LearnerSpeed:
    """Time the update of one rollout, again and again on the same data."""
    gpu = on_gpu(config.device)
    repeats = repeats or (8 if gpu else 2)
    warm_up = WARM_UP + 1 if gpu else 1  # a GPU chooses kernels and captures graphs first
    if torch.cuda.is_available():
        gc.collect()  # a trainer before this one
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    floor = floor_of(config)  # before the trainer, which sets the arithmetic of its device
    env = SyntheticAtari(config.env.num_envs, frame_skip=config.env.frame_skip)
    trainer = Trainer(replace(config, overlap=False), env)
    trainer.start()
    rollout = trainer.collector.collect()
    for _ in range(warm_up):
        trainer.learn(rollout)
    seconds = median_time(lambda: trainer.learn(rollout), trainer.device, repeats)
    update, steps = update_of(trainer, rollout), config.epochs * config.minibatches
    step = median_time(update, trainer.device, repeats) / steps
    peak = torch.cuda.max_memory_reserved() / 1e9 if trainer.device.type == "cuda" else 0.0
    found = profile(update, steps) if with_profile else None
    what = config.bonus, config.policy, config.env.num_envs, config.precision, config.fast
    times = seconds * 1e3, step * 1e3, floor.milliseconds(rates_of(trainer.device))
    return LearnerSpeed(*what, samples_of(config), *times, config.frames_per_rollout / seconds, peak, found)
