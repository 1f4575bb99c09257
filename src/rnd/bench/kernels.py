"""What an optimiser step launches on a GPU, and the time below which none can be: `rnd bench learner --profile`."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch.nn import functional as F

from rnd.bench.synthetic import SyntheticAtari
from rnd.config import Config
from rnd.data.transitions import Rollout
from rnd.envs.spec import SCREEN
from rnd.training.trainer import Trainer

ADAM_BYTES = 36
"""Per parameter and step: its gradient is written and read, it and its two moments are read and written, and the
forward and the backward pass read it, the latter from where the former left it."""


@dataclass(frozen=True)
class Floor:
    """What one optimiser step must compute and move at least."""

    operations: float
    bytes: float

    def milliseconds(self, rates: Rates) -> float:
        """Both at full rate, at the same time."""
        return 1e3 * max(self.operations / rates.operations, self.bytes / rates.bytes)


@dataclass(frozen=True)
class Rates:
    """Per second, as measured on the device: operations of a large matrix product, bytes of a large copy."""

    operations: float
    bytes: float


@dataclass(frozen=True)
class KernelTime:
    """A kernel within one optimiser step."""

    name: str
    launches: float
    microseconds: float


@dataclass(frozen=True)
class Profile:
    """One optimiser step on the GPU, means over an update; times in microseconds."""

    kernels: float
    """Launches, with copies and fills."""
    in_kernels: float
    """Sum of their times."""
    busy: float
    """Time in which at least one ran: less than their sum where some ran beside each other."""
    gaps: float
    """Time in which none ran, between the first and the last."""
    by_name: list[KernelTime]
    """The longest first."""


def floor_of(config: Config) -> Floor:
    """Counted on the CPU, on a few samples, by PyTorch's own count of operations."""
    samples = samples_of(config)
    both, parameters = operations_per_sample(config)
    policy, _ = operations_per_sample(replace(config, bonus="none"))
    frame = SCREEN * SCREEN
    return Floor(samples * (policy + config.keep * (both - policy)), parameters * ADAM_BYTES + samples * frame)


def samples_of(config: Config) -> int:
    """Per optimiser step."""
    return config.rollout_steps * config.env.num_envs // config.minibatches


def operations_per_sample(config: Config) -> tuple[float, int]:
    """Operations of policy and bonus, where every sample trains the latter, and the number of parameters."""
    from torch.utils.flop_counter import FlopCounterMode

    steps = envs = 4
    config = replace(config, env=replace(config.env, num_envs=envs), rollout_steps=steps, minibatches=1, epochs=1)
    config = replace(config, bonus_options=replace(config.bonus_options, keep=1.0), device="cpu", overlap=False)
    trainer = Trainer(config, SyntheticAtari(envs))
    trainer.start()
    update = update_of(trainer, trainer.collector.collect())
    with FlopCounterMode(display=False) as counter:
        update()
    return counter.get_total_flops() / (steps * envs), sum(p.numel() for p in trainer.learner.parameters)


def update_of(trainer: Trainer, rollout: Rollout) -> Callable[[], object]:
    """The epochs of one rollout, to be called again and again."""
    targets, bonus_targets, _ = trainer._prepare(rollout)
    return lambda: trainer.learner.update(rollout, targets, bonus_targets)


def rates_of(device: torch.device) -> Rates:
    """In the arithmetic that the device is set to. Operations: of a matrix product or of a convolution, whichever has
    more; on a CPU they are made by different libraries."""
    size, length, images = (8192, 2**28, 4096) if device.type == "cuda" else (1024, 2**22, 64)
    a, b = torch.randn(2, size, size, device=device)
    maps = torch.randn(images, 64, 20, 20, device=device).to(memory_format=torch.channels_last)
    kernels = torch.randn(64, 64, 3, 3, device=device).to(memory_format=torch.channels_last)
    x = torch.zeros(length, device=device)
    y = torch.zeros_like(x)
    product, copy = median_time(lambda: a @ b, device, 5), median_time(lambda: y.copy_(x), device, 5)
    convolution = median_time(lambda: F.conv2d(maps, kernels), device, 5)
    operations = max(2 * size**3 / product, 2 * images * 18**2 * kernels.numel() / convolution)
    return Rates(operations, 2 * x.nbytes / copy)


def median_time(function: Callable[[], object], device: torch.device, calls: int) -> float:
    """Seconds of a call."""
    times = []
    for _ in range(calls):
        synchronize(device)
        begun = time.perf_counter()
        function()
        synchronize(device)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def profile(function: Callable[[], object], steps: int) -> Profile:
    """The kernels of a call of `function`, which takes that many optimiser steps."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recording

    torch.cuda.synchronize()
    with recording(activities=[ProfilerActivity.CUDA]) as recorded:
        function()
        torch.cuda.synchronize()
    launched = [event for event in recorded.events() if event.device_type.name == "CUDA"]
    return summary([(e.name, e.time_range.start, e.time_range.end) for e in launched], steps)


def summary(launched: list[tuple[str, float, float]], steps: int) -> Profile:
    """From the name, start and end of every kernel."""
    times: dict[str, float] = defaultdict(float)
    for name, start, end in launched:
        times[name] += end - start
    launches = Counter(name for name, _, _ in launched)
    gaps = between([(start, end) for _, start, end in launched])
    span = max(end for _, _, end in launched) - min(start for _, start, _ in launched)
    by_name = [KernelTime(name, launches[name] / steps, total / steps) for name, total in times.items()]
    by_name.sort(key=lambda kernel: -kernel.microseconds)
    return Profile(len(launched) / steps, sum(times.values()) / steps, (span - gaps) / steps, gaps / steps, by_name)


def between(intervals: list[tuple[float, float]]) -> float:
    """Time that no interval covers, from the first start to the last end."""
    reached: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        reached.append((start, max(end, reached[-1][1]) if reached else end))
    return sum(max(0.0, later[0] - earlier[1]) for earlier, later in pairwise(reached))
