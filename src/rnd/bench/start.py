"""rnd bench start: seconds from the command to the end of the first iteration, with nothing cached, and once more.

Each start is a process of its own, `rnd train`, which is stopped after its first iteration. Its caches of compiled
kernels and translated games are in a folder that is empty before the first start, and thrown away after the last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rnd.bench.options import BenchOptions
from rnd.bench.progress import Progress
from rnd.config import Config
from rnd.config.ranges import PositiveFloat
from rnd.envs.factories import rom_of
from rnd.envs.registry import on_gpu
from rnd.foundation.errors import RunError
from rnd.jobs.process import last_line, start_process

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "XDG_CACHE_HOME")
"""Where PyTorch's compiler, Triton, the driver and rnd keep what they compile."""
POLL = 0.05
"""Seconds between two looks at the run folder: the error of a measurement."""


@dataclass(frozen=True)
class Options(BenchOptions):
    """What is measured."""

    game: str = "montezuma"
    """Atari game."""
    policy: str = "cnn"
    """Policy network: cnn or gru."""
    overlap: bool = True
    """Collect the next rollout while learning."""
    limit: PositiveFloat = 600.0
    """Seconds after which a start is given up."""


@dataclass(frozen=True)
class Start:
    """One start."""

    num_envs: int
    cache: str
    """empty or filled."""
    seconds: float
    """From the command to the first row of timing.csv."""


def run(options: Options, console: Console) -> int:
    """The whole bench; the exit code."""
    sizes = options.num_envs or ((128,) if on_gpu(options.device) else (16,))
    changes: dict[str, Any] = {"policy": options.policy, "overlap": options.overlap}
    configs = [options.config(num_envs, options.game, **changes) for num_envs in sizes]
    progress = Progress(2 * len(configs))
    starts = [start for config in configs for start in measure(config, options.limit, progress)]
    if options.json:
        print(json.dumps([asdict(start) for start in starts], indent=2))
        return 0
    table = Table("environments", "cache", "seconds", title="from the command to the end of the first iteration")
    for start in starts:
        table.add_row(str(start.num_envs), start.cache, f"{start.seconds:.1f}")
    console.print(table)
    return 0


def measure(config: Config, limit: float, progress: Progress) -> list[Start]:
    """A start with empty caches, and one with what the first has left there."""
    with tempfile.TemporaryDirectory(prefix="rnd-bench-start-") as name:
        environment = os.environ | {variable: str(Path(name, variable.lower())) for variable in CACHES}
        starts = []
        for cache in ("empty", "filled"):
            named = replace(config, out=name, name=cache, writers="none")
            seconds = progress(
                f"{config.env.num_envs} environments, caches {cache}",
                partial(seconds_to_start, named, environment, limit),
                lambda seconds: f"{seconds:.1f} s",
            )
            starts.append(Start(config.env.num_envs, cache, seconds))
            # The run was stopped after its first iteration, perhaps before its game was translated.
            translate = [sys.executable, "-m", "rnd.envs.native.translation", rom_of(config.env.id)]
            subprocess.run(translate, env=environment, capture_output=True, check=False)
    return starts


def seconds_to_start(config: Config, environment: dict[str, str], limit: float) -> float:
    """Seconds until a run of `config` has ended its first iteration; it is stopped then."""
    folder = Path(config.out)
    settings, log = folder / f"{config.name}.json", folder / f"{config.name}.log"
    with log.open("wb") as output:
        begun = time.perf_counter()
        process = start_process(config, settings, output, environment)
        try:
            while not has_row(folder / str(config.name) / "timing.csv"):
                if process.poll() is not None:
                    raise RunError(f"the run ended before its first iteration: {last_line(log)}")
                if time.perf_counter() - begun > limit:
                    raise RunError(f"no iteration within {limit:g} s; nearest: a larger --limit")
                time.sleep(POLL)
            return time.perf_counter() - begun
        finally:
            process.kill()
            process.communicate()


def has_row(table: Path) -> bool:
    """Whether a table has a row after its header."""
    return table.exists() and table.read_bytes().count(b"\n") > 1
