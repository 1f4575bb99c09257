"""One run from start to end: folder, environments, trainer, writers, progress."""

from __future__ import annotations

import time
from contextlib import closing

from rich.console import Console

from rnd import envs
from rnd.config import Config
from rnd.record.folder import RunFolder
from rnd.record.metrics import CsvWriter, Row, TensorBoardWriter, WandbWriter, Writer, Writers
from rnd.record.progress import Phase, count, duration, shown
from rnd.train import Trainer, random_steps


def start(config: Config, console: Console) -> RunFolder:
    """Train a new run."""
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        folder = RunFolder.create(config)
        banner(trainer, folder, console)
        random_start(trainer, console)
        trainer.collector.start()
        writers = make_writers(config, folder)
        try:
            last = loop(trainer, writers, console)
        finally:
            writers.close()
            folder.write_json("rooms.json", trainer.episodes.state_dict()["rooms"])
        farewell(folder, last, console)
    return folder


def random_start(trainer: Trainer, console: Console) -> None:
    """The random agent's steps, as a phase of their own."""
    config, steps = trainer.config, random_steps(trainer.config)
    if not trainer.bonus.random_start:
        return
    if steps < config.bonus_options.random_steps:
        wanted = config.bonus_options.random_steps
        console.print(
            f"random agent: {steps:,} steps instead of {wanted:,}, a tenth of this short run", highlight=False
        )
    per_step = config.env.num_envs * config.env.frame_skip
    with Phase(console, "random agent", steps * per_step) as phase:
        for step in trainer.random_start():
            phase.advance(step * per_step)


def loop(trainer: Trainer, writers: Writers, console: Console) -> Row:
    """Consume the training loop: record every iteration and show it."""
    config, row = trainer.config, Row()
    clock = time.monotonic()
    with Phase(console, "training", config.iterations * config.frames_per_rollout, trainer.frames) as phase:
        for row in trainer.train():
            now = time.monotonic()
            seconds, clock = now - clock, now
            writers.write(row, timing(trainer, seconds))
            phase.advance(trainer.frames, row)
            if row["iteration"] == 1:
                announce(config, phase.rate, console)
    return row


def timing(trainer: Trainer, seconds: float) -> Row:
    """Where the wall time of an iteration went. With --overlap the parts run side by side and add up to more."""
    parts = trainer.collector.clock.lap() | trainer.clock.lap()
    speed = trainer.config.frames_per_rollout / max(seconds, 1e-9)
    return {"seconds": seconds, "frames_per_second": speed, **parts, "other": seconds - sum(parts.values())}


def make_writers(config: Config, folder: RunFolder) -> Writers:
    writers: list[Writer] = [CsvWriter(folder.path), TensorBoardWriter(folder.path)]
    if config.wandb:
        writers.append(WandbWriter(folder.path, folder.path.name, config.to_dict()))
    return Writers(writers)


def banner(trainer: Trainer, folder: RunFolder, console: Console) -> None:
    config, spec = trainer.config, trainer.env.spec
    parameters = sum(p.numel() for p in trainer.learner.parameters)
    console.print(
        f"{config.env.id}: {config.env.num_envs} environments ({spec.backend}), bonus {config.bonus}, "
        f"policy {config.policy}, {parameters:,} trained parameters, {trainer.device}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"run folder: {folder.path}", highlight=False, soft_wrap=True)


def announce(config: Config, rate: float, console: Console) -> None:
    """How long the whole run takes at the speed of the first iteration."""
    total = config.iterations * config.frames_per_rollout
    speed = f"{duration(total / rate)} at {count(rate)} frames/s"
    text = f"{count(total)} frames in {config.iterations:,} rollouts take {speed}"
    console.print(text, highlight=False, soft_wrap=True)


def farewell(folder: RunFolder, last: Row, console: Console) -> None:
    """The result, and where everything is."""
    console.print("finished: " + ", ".join(f"{title} {text}" for title, text in shown(last)[:4]), highlight=False)
    console.print(f"  metrics      {folder.path / 'metrics.csv'}", highlight=False, soft_wrap=True)
    console.print(f"  tensorboard  tensorboard --logdir {folder.path / 'tensorboard'}", highlight=False, soft_wrap=True)
    console.print(f"  config       {folder.path / 'config.json'}", highlight=False, soft_wrap=True)
