"""DeepSea 20: does the bonus find the one sequence of actions in 2^20 that pays?

    python benchmarks/deep_sea.py

Trains every seed with RND until 90% of its last 100 episodes find the treasure, and then without a bonus for the whole
budget. Solved: all seeds with RND, none without. Writes a table and says where.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rnd import envs
from rnd.cli import parse
from rnd.config import Config
from rnd.presets import preset
from rnd.record.tables import csv_text
from rnd.trainer import Trainer


@dataclass(frozen=True)
class Options:
    """Which runs."""

    size: int = 20
    """Side of the square."""
    seeds: int = 5
    """Runs a bonus."""
    frames: int = 300_000
    """Budget of environment steps per run."""
    bonuses: tuple[str, ...] = ("rnd", "none")
    """Bonuses that are compared."""
    out: str = "benchmarks/results/deep_sea.csv"
    """The table."""


class Result(NamedTuple):
    """One run."""

    bonus: str
    seed: int
    solved_at: int | None
    """Environment steps after which 90% of the last 100 episodes had found the treasure."""
    best_success: float
    """The highest share of the last 100 episodes."""
    frames: int
    seconds: float


def solve(config: Config) -> Result:
    """Train until it is solved or the budget is spent."""
    begun, best, frames = time.monotonic(), 0.0, 0
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        for _ in trainer.random_start():
            pass
        trainer.start()
        for row in trainer.train():
            best, frames = max(best, row["success"] or 0.0), trainer.frames
            if best >= 0.9:
                break
    solved_at = frames if best >= 0.9 else None
    return Result(config.bonus, config.seed, solved_at, best, frames, round(time.monotonic() - begun, 1))


def main() -> None:
    options = parse(Options, sys.argv[1:], prog="deep_sea.py", description=str(__doc__))
    results = []
    for bonus in options.bonuses:
        for seed in range(1, options.seeds + 1):
            start = preset(f"rnd/DeepSea-{options.size}")
            config = replace(start, bonus=bonus, seed=seed, frames=options.frames, device="cpu", threads=1)
            results.append(solve(config))
            print(results[-1], flush=True)
    for bonus in options.bonuses:
        solved = [r.solved_at for r in results if r.bonus == bonus and r.solved_at is not None]
        print(f"{bonus}: {len(solved)} of {options.seeds} seeds solved within {options.frames:,} steps", solved)
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(csv_text(Result._fields, results))
    print(options.out)


if __name__ == "__main__":
    main()
