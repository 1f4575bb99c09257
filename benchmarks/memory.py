"""Resident memory of a small run over many iterations, saves included.

    python benchmarks/memory.py [--game CartPole-v1] [--iterations 2000]

Prints the memory at a tenth of the run and at its end, and fails where it grew by more than 5%.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from rnd import run
from rnd.config.presets import preset
from rnd.metrics.metrics import Row

BAR = 1.05


class Memory:
    """A writer that notes the memory of the process after every iteration."""

    def __init__(self) -> None:
        self.bytes: list[int] = []

    def write(self, row: Row, timing: Row) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.bytes.append(pages * os.sysconf("SC_PAGE_SIZE"))

    def flush(self) -> None:
        """Nothing to flush."""

    def close(self) -> None:
        """Nothing to close."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="CartPole-v1")
    parser.add_argument("--iterations", type=int, default=2000)
    options = parser.parse_args()
    memory, plain = Memory(), run.make_writers

    def with_memory(*arguments):
        writers = plain(*arguments)
        writers.writers.append(memory)
        return writers

    run.make_writers = with_memory
    with tempfile.TemporaryDirectory() as out:
        run.start(small(options.game, options.iterations, out), Console(file=io.StringIO()))
    first, last = memory.bytes[options.iterations // 10 - 1], memory.bytes[-1]
    print(f"{options.game}: {first / 2**20:.1f} MiB after {options.iterations // 10} iterations, ", end="")
    print(f"{last / 2**20:.1f} MiB after {len(memory.bytes)}: {last / first - 1:+.2%} (bar: +{BAR - 1:.0%})")
    sys.exit(last > BAR * first)


def small(game: str, iterations: int, out: str):
    config = preset(game)
    env = dataclasses.replace(config.env, num_envs=8)
    saving = dataclasses.replace(config.checkpoint, every_iterations=50)
    config = dataclasses.replace(config, env=env, checkpoint=saving, rollout_steps=16, out=out, device="cpu", threads=1)
    return dataclasses.replace(config, frames=iterations * config.frames_per_rollout)


if __name__ == "__main__":
    main()
