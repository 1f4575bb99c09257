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

import torch
from torch import Tensor

from rnd import bonus as bonuses
from rnd.bonus.contract import Bonus
from rnd.cli import parse
from rnd.config import BonusConfig, Config, EnvConfig
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.networks import STACK, Policy
from rnd.normalize import ReturnScaler
from rnd.paper.table import table
from rnd.ppo import Learner
from rnd.returns import combine
from rnd.rollout import Rollout
from rnd.train import in_chunks
from rnd.transitions import Transitions

IMAGE, MOVES = ObservationSpec("image", (84, 84)), ActionSpec("discrete", (18,))


@dataclass(frozen=True)
class Options:
    """What is measured."""

    bonuses: tuple[str, ...] = ("none", "rnd", "dynamics", "autoencoder", "zero", "count")
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


class Agent:
    """Policy, bonus and learner, without environments."""

    def __init__(self, config: Config):
        torch.manual_seed(config.seed)
        self.config = config
        self.policy = Policy("cnn", IMAGE, MOVES, config.policy_width)
        self.bonus: Bonus = bonuses.make(config.bonus, IMAGE, MOVES, config.bonus_options)
        self.scaler = ReturnScaler(config.env.num_envs, config.gamma_int)
        self.learner = Learner(config, MOVES, self.policy, self.bonus, torch.Generator().manual_seed(0))

    def update(self, rollout: Rollout) -> None:
        """What `Trainer.train` does after the rollout."""
        moves = rollout.transitions
        intrinsic_TN = self.scaler(in_chunks(self.bonus.score, moves))
        values = rollout.values_ext_TpN, rollout.values_int_TpN
        targets = combine(self.config, rollout.rewards_ext_TN, intrinsic_TN, *values, rollout.done_TN)
        self.bonus.observe(moves.next_obs)
        self.learner.update(rollout, targets, in_chunks(self.bonus.targets, moves))


def random_rollout(config: Config) -> Rollout:
    steps, envs = config.rollout_steps, config.env.num_envs
    draw = torch.Generator().manual_seed(1)

    def noise(rows: int) -> Tensor:
        return torch.randn(rows, envs, generator=draw)

    frames = torch.randint(0, 256, (STACK + steps, envs, 84, 84), generator=draw, dtype=torch.uint8)
    age = torch.full((steps + 1, envs), STACK - 1, dtype=torch.int8)
    actions = torch.randint(0, MOVES.sizes[0], (steps, envs), generator=draw)
    off = torch.zeros(steps, envs, dtype=torch.bool)
    logp_TN = torch.full((steps, envs), -torch.tensor(float(MOVES.sizes[0])).log())
    return Rollout(
        transitions=Transitions(frames, age, actions, STACK),
        logp_TN=logp_TN,
        values_ext_TpN=noise(steps + 1),
        values_int_TpN=noise(steps + 1),
        rewards_ext_TN=noise(steps).sign(),
        done_TN=off,
        first_TN=off,
        hidden_NH=torch.zeros(envs, 0),
    )


def main() -> None:
    options = parse(Options, sys.argv[1:], prog="bonus_overhead.py", description=str(__doc__))
    torch.set_num_threads(options.threads)
    config = Config(
        env=EnvConfig(id="random frames", num_envs=options.envs),
        bonus_options=BonusConfig(keep=options.keep),
        rollout_steps=options.steps,
        device="cpu",
    )
    rollout = random_rollout(config)
    agents = {name: Agent(replace(config, bonus=name)) for name in options.bonuses}
    best = dict.fromkeys(options.bonuses, float("inf"))
    for turn in range(options.rounds + 1):
        for name, agent in agents.items():
            start = time.process_time()
            agent.update(rollout)
            if turn:  # the first is a warm-up
                best[name] = min(best[name], time.process_time() - start)
    base = best[options.bonuses[0]]
    rows = [(name, options.keep, round(1e3 * seconds, 1), round(seconds / base, 3)) for name, seconds in best.items()]
    for name, _, milliseconds, ratio in rows:
        print(f"{name:<12} {milliseconds:>8.1f} CPU ms an update, {ratio:.2f} times that of {options.bonuses[0]}")
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(table(("bonus", "keep", "cpu_milliseconds", "ratio"), rows))
    print(options.out)


if __name__ == "__main__":
    main()
