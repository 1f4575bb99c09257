"""rnd bench train: the speed of whole iterations and its limits, in one run.

The environments alone (random actions), the learner alone (the same rollout again and again), and training itself,
synchronous and overlapped, with the shares of its wall time. The speed of shared cores drifts within seconds, so the
environments alone and training take turns, and a share of the limit is that of neighbouring turns.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from torch import Tensor

from rnd import envs
from rnd.bench.envs import player
from rnd.bench.learner import in_milliseconds
from rnd.bench.learner import measure as measure_learner
from rnd.bench.options import BenchOptions
from rnd.bench.progress import Progress
from rnd.checkpoint import zoo
from rnd.checkpoint.export import load_agent
from rnd.config import Config
from rnd.config.ranges import PositiveInt, Threads
from rnd.envs.native_envs import NativeEnvs
from rnd.envs.registry import on_gpu
from rnd.foundation.errors import UserError
from rnd.run import timing
from rnd.training.trainer import Trainer

SHARES = ("emulation", "inference", "learning", "other")
TURN = 4
"""Iterations of training between two measurements of the environments alone."""
SECONDS = 0.5
"""Length of such a measurement."""


@dataclass(frozen=True)
class Options(BenchOptions):
    """What is measured."""

    game: str = "montezuma"
    """Atari game."""
    policy: str = "cnn"
    """Policy network: cnn or gru."""
    recipe: str = "paper"
    """Settings: paper, efficient or snd (docs/recipe.md)."""
    minibatches: PositiveInt | None = None
    """Minibatches per epoch; default: those of the recipe."""
    backend: Literal["auto", "native", "ale"] = "auto"
    """Atari emulator."""
    translate: bool = True
    """Translate the game for the native core first, where there is a compiler."""
    precision: Literal["tf32", "float32", "bf16"] = "tf32"
    """Matrix arithmetic on CUDA."""
    iterations: PositiveInt | None = None
    """Timed iterations of training; the median counts. Default: 24, on a CPU 3."""
    workers: Threads | None = None
    """Worker processes or emulator threads; default: all cores, beside a GPU one less for the native core."""
    agent: str | None = None
    """Train on from this agent of the game (a run, a file, zoo:NAME), not from a new one: a game takes another time to
    emulate where a good player is. The environments alone still get random actions."""


@dataclass(frozen=True)
class TrainSpeed:
    """Training at one size and its limits, frames per second."""

    num_envs: int
    policy: str
    samples: int
    """Per minibatch."""
    backend: str
    emulator_alone: float
    learner_alone: float
    synchronous: float
    overlapped: float
    of_its_limit: float
    """Speed of overlapped training over its limit: the slower of emulator alone and learner alone."""
    shares: dict[str, float]
    """Share of the synchronous wall time."""
    peak_gigabytes: float


@dataclass(frozen=True)
class Turn:
    """The environments alone for a moment, then a few iterations of training."""

    emulator_alone: float
    laps: list[dict[str, float]]
    frames: int

    @property
    def training(self) -> float:
        return self.frames / statistics.median(lap["seconds"] for lap in self.laps)


def run(options: Options, console: Console) -> int:
    """The whole bench; the exit code."""
    gpu = on_gpu(options.device)
    sizes = options.num_envs or ((128,) if gpu else (16,))
    progress = Progress(3 * len(sizes))
    results = [measure(options, num_envs, options.iterations or (24 if gpu else 3), progress) for num_envs in sizes]
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return 0
    heading = f"frames/s, {options.policy}, {options.recipe} recipe, {results[0].backend}"
    columns = "environments", "samples per step", "emulator alone", "learner alone", "synchronous", "overlapped"
    table = Table(*columns, "of its limit", title=heading)
    shares = Table("environments", *SHARES, title="shares of the synchronous wall time")
    for r in results:
        speeds = r.emulator_alone, r.learner_alone, r.synchronous, r.overlapped
        values = f"{r.samples:,}", *(f"{speed:,.0f}" for speed in speeds), f"{r.of_its_limit:.0%}"
        table.add_row(str(r.num_envs), *values)
        shares.add_row(str(r.num_envs), *(f"{r.shares[name]:.1%}" for name in SHARES))
    console.print(table)
    console.print(shares)
    return 0


def measure(options: Options, num_envs: int, iterations: int, progress: Progress) -> TrainSpeed:
    def trained(overlap: bool) -> list[Turn]:
        return list(turns(replace(config, overlap=overlap), policy, alone, iterations))

    emulator = {"backend": options.backend, "workers": options.workers, "translate": options.translate}
    changes: dict[str, Any] = {"policy": options.policy, "precision": options.precision}
    if options.minibatches:
        changes["minibatches"] = options.minibatches
    config = options.config(num_envs, options.game, emulator, options.recipe, **changes)
    policy = trained_policy(options.agent, config) if options.agent else {}
    with closing(envs.make(config)) as env:  # first: what cannot be made is refused before anything is measured
        learner = progress(f"{num_envs} environments, learner alone", partial(measure_learner, config), in_milliseconds)
        if isinstance(env, NativeEnvs):
            env.finish_translation()
        backend = env.spec.backend
        env.reset()
        alone = player(env)
        synchronous = progress(f"{num_envs} environments, synchronous", partial(trained, False), in_frames)
        overlapped = progress(f"{num_envs} environments, overlapped", partial(trained, True), in_frames)
    laps = [lap for turn in synchronous for lap in turn.laps]
    total = sum(lap["seconds"] for lap in laps)
    return TrainSpeed(
        num_envs,
        config.policy,
        learner.samples,
        backend,
        statistics.median(turn.emulator_alone for turn in (*synchronous, *overlapped)),
        learner.frames_per_second,
        training_speed(synchronous),
        training_speed(overlapped),
        statistics.median(t.training / min(t.emulator_alone, learner.frames_per_second) for t in overlapped),
        {name: sum(lap[name] for lap in laps) / total for name in SHARES},
        learner.peak_gigabytes,
    )


def training_speed(turns: list[Turn]) -> float:
    return statistics.median(turn.training for turn in turns)


def in_frames(turns: list[Turn]) -> str:
    return f"{training_speed(turns):,.0f} frames/s"


def trained_policy(name: str, config: Config) -> dict[str, Tensor]:
    """The weights of an agent that plays the same game with the same kind of network."""
    agent = load_agent(zoo.locate(name))
    has, wanted = (f"{one.env.id} with {one.policy}" for one in (agent.config, config))
    if has != wanted:
        raise UserError(f"{name} is an agent of {has}, and {wanted} is measured; see --game and --policy")
    return agent.policy.state_dict()


def turns(
    config: Config, policy: dict[str, Tensor], alone: Callable[[float], float], iterations: int
) -> Iterator[Turn]:
    """Training, from the weights of a policy where there are any, and the environments alone in between."""
    warm_up = 6 if on_gpu(config.device) else 1
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        if policy:
            trainer.policy.load_state_dict(policy)
        trainer.start()
        rows = timed_rows(trainer)
        for _ in range(warm_up):
            next(rows)
        for done in range(0, iterations, TURN):
            trainer.collector.wait()
            speed = alone(SECONDS)
            next(rows)  # overlapped, it found its rollout ready: not a lap of steady training
            laps = list(islice(rows, min(TURN, iterations - done)))
            yield Turn(speed, laps, config.frames_per_rollout)
        trainer.collector.close()


def timed_rows(trainer: Trainer) -> Iterator[dict[str, float]]:
    """The timing row of every iteration."""
    rows = trainer.train()
    while True:
        begun = time.perf_counter()
        next(rows)
        row = timing(trainer, time.perf_counter() - begun)
        yield {name: float(value or 0.0) for name, value in row.items()}
