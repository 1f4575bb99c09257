"""What a bonus adds to the time of an update of the same agent without one (the paper: "minimal overhead").

    python benchmarks/bonus_overhead.py

An update is everything after the rollout: score, statistics, targets, and the epochs of the optimiser, with the paper's
CNN on random frames. Environments are few so that it ends soon; the keep probability is that of 128 environments
(0.25), set explicitly. The bonuses take turns, so that a machine that slows down slows all of them. What is measured is
this process's CPU time, so that other programs do not count; the smallest of each bonus is taken.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rnd.bench.synthetic import SyntheticAtari
from rnd.cli import parse
from rnd.config import BonusOptions, Config, EnvConfig
from rnd.config.components import BONUSES
from rnd.foundation.tables import csv_text
from rnd.training.trainer import Trainer


@dataclass(frozen=True)
class Options:
    """What is measured."""

    bonuses: tuple[str, ...] = tuple(sorted(BONUSES, key=lambda name: name != "none"))
    """In this order; the first is what the others are compared with."""
    envs: int = 16
    """Environments."""
    steps: int = 128
    """Steps of a rollout."""
    keep: float = 0.25
    """Share of samples that train the predictor: the paper's at 128 environments."""
    rounds: int = 2
    """Updates of every bonus."""
    threads: int = 1
    """CPU threads."""
    out: str = "benchmarks/results/bonus_overhead.csv"
    """The table."""


def main() -> None:
    options = parse(Options, sys.argv[1:], prog="bonus_overhead.py", description=str(__doc__))
    config = Config(
        env=EnvConfig(num_envs=options.envs),
        bonus_options=BonusOptions(keep=options.keep),
        rollout_steps=options.steps,
        threads=options.threads,
        device="cpu",
    )
    trainers = {name: Trainer(replace(config, bonus=name), SyntheticAtari(options.envs)) for name in options.bonuses}
    for trainer in trainers.values():
        trainer.start()
    rollouts = {name: trainer.collector.collect() for name, trainer in trainers.items()}
    best = dict.fromkeys(options.bonuses, float("inf"))
    for turn in range(options.rounds + 1):
        for name, trainer in trainers.items():
            start = time.process_time()
            trainer.learn(rollouts[name])
            if turn:  # the first is a warm-up
                best[name] = min(best[name], time.process_time() - start)
    base = best[options.bonuses[0]]
    rows = [(name, options.keep, round(1e3 * seconds, 1), round(seconds / base, 3)) for name, seconds in best.items()]
    for name, _, milliseconds, ratio in rows:
        print(f"{name:<12} {milliseconds:>8.1f} CPU ms an update, {ratio:.2f} times that of {options.bonuses[0]}")
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(csv_text(("bonus", "keep", "cpu_milliseconds", "ratio"), rows))
    print(options.out)


if __name__ == "__main__":
    main()
