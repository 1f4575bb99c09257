"""One run from start to end: folder, environments, trainer, writers, checkpoints, progress."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from rnd import envs, memory
from rnd.config import Config
from rnd.distributed import LostRankError, Ranks, joined
from rnd.envs.interface import VectorEnv
from rnd.errors import InterruptedRunError, RunError
from rnd.ppo import NonFiniteLossError
from rnd.record import checkpoint
from rnd.record.about import FILES, check_fits
from rnd.record.checkpoint import Checkpoint
from rnd.record.folder import RunFolder
from rnd.record.interrupt import Interrupts
from rnd.record.keeper import Keeper, NotSavedError
from rnd.record.metrics import CsvWriter, Row, TensorBoardWriter, WandbWriter, Writer, Writers, truncate
from rnd.record.places import PlacesWriter
from rnd.record.progress import Phase, count, duration, shown
from rnd.train import Trainer, random_steps, resolve_device


def start(config: Config, console: Console) -> RunFolder:
    """Train a new run, alone or as one of torchrun's processes."""
    WandbWriter.check(config)
    with joined() as everyone, Interrupts() as stop, memory.guarded(config):
        ranks = everyone.on(config.device)
        config, console = ranks.share_of(config), console_of(ranks, console)
        with closing(make_envs(config, ranks)) as env:
            trainer = Trainer(config, env, ranks)
            folder = ranks.first(lambda: RunFolder.create(config))
            with locked(folder, ranks):
                begin(trainer, folder, console, stop)
                work(trainer, folder, console, stop)
    return folder


def resume(path: Path, console: Console, frames: int | None = None) -> RunFolder:
    """Go on with a run, exactly as if it had not been stopped; `frames` makes it longer (or shorter).

    Another number of ranks deals the environments anew; rank 0 alone reads the checkpoint, and tells the others.
    """
    saved: Checkpoint | None = None

    def read() -> dict[str, Any] | None:
        nonlocal saved
        saved = newest(folder, console)
        return saved.about if saved else None

    with joined() as everyone, Interrupts() as stop:
        folder, console = everyone.first(lambda: RunFolder.open(path)), console_of(everyone, console)
        with locked(folder, everyone):
            config = everyone.share_again(everyone.first(folder.config))
            if frames is not None:
                config = dataclasses.replace(config, frames=frames)
            config.validate()
            WandbWriter.check(config)
            ranks = everyone.on(config.device)
            about = ranks.first(read)
            if about and about["iteration"] >= config.iterations:
                done = f"{path} is finished: {about['frames']:,} frames; to go on: rnd resume {path} --frames N"
                say(console, done)
                return folder
            with memory.guarded(config), closing(make_envs(config, ranks)) as env:
                if about:
                    check_fits(about, config, env.spec)
                trainer = Trainer(config, env, ranks)
                if about:
                    restore(trainer, saved, about, folder, console)
                else:
                    begin(trainer, folder, console, stop)
                if ranks.leads:
                    folder.write_json("config.json", config.to_dict())
                work(trainer, folder, console, stop, about)
    return folder


def make_envs(config: Config, ranks: Ranks) -> VectorEnv:
    """The environments, unless there can be no room for their rollouts."""
    memory.check(config, memory.guess_observation(config), resolve_device(config, ranks))
    return envs.make(config)


def console_of(ranks: Ranks, console: Console) -> Console:
    """One process speaks."""
    return console if ranks.leads else Console(quiet=True)


@contextmanager
def locked(folder: RunFolder, ranks: Ranks) -> Iterator[None]:
    """Rank 0 holds the folder for all."""
    with ExitStack() as stack:
        ranks.first(lambda: stack.enter_context(folder.lock()))
        yield


def begin(trainer: Trainer, folder: RunFolder, console: Console, stop: Interrupts) -> None:
    """The first steps of a run: the random agent, then the first observations."""
    if trainer.ranks.leads:
        rewind(folder, dict.fromkeys(FILES, 0))
    banner(trainer, folder, console)
    random_start(trainer, folder, console, stop)
    trainer.collector.start()
    if trainer.env.spec.has_rooms:  # the room in which the first episodes start was entered, too
        trainer.episodes.update([], trainer.env.buffers["room"].tolist(), frames=0)


def newest(folder: RunFolder, console: Console) -> Checkpoint | None:
    """The checkpoint to go on from. Damaged ones after it are named and set aside."""
    saved, problems = checkpoint.newest(folder.checkpoints)
    for problem in problems:
        say(console, f"damaged checkpoint: {problem}")
    if saved:
        checkpoint.set_aside(folder.checkpoints, after=saved.path)
        if problems:
            say(console, f"falling back to {saved.path}")
    else:
        say(console, "no checkpoint was written yet: the run begins again")
    return saved


def restore(
    trainer: Trainer, saved: Checkpoint | None, about: dict[str, Any], folder: RunFolder, console: Console
) -> None:
    """Bring trainer and files back to the moment of a checkpoint, which rank 0 has read."""
    try:
        exact = trainer.load_state_dict(saved.state if saved else {})
    except (KeyError, ValueError, RuntimeError) as error:
        raise RunError(f"the checkpoint in {folder.path} does not fit this version of rnd: {error}") from error
    banner(trainer, folder, console)
    say(console, f"resumed at iteration {trainer.iteration:,}, {trainer.frames:,} frames")
    if not exact:
        before = place(Config.from_dict(about["config"]), about["device"])
        now = place(trainer.config, trainer.device.type)
        say(console, f"the run moves from {before} to {now}: its random draws differ from here")
    if trainer.ranks.leads:
        rewind(folder, about["sizes"])
        described = folder.read_json("run.json")
        stamp = {"iteration": trainer.iteration, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        folder.write_json("run.json", described | {"resumed": [*described.get("resumed", []), stamp]})


def place(config: Config, device: str) -> str:
    """Where a run is computed."""
    return device if config.ranks == 1 else f"{device} on {config.ranks} ranks"


def rewind(folder: RunFolder, sizes: dict[str, int]) -> None:
    """Cut the growing files back: no row is missing before the checkpoint, none is doubled after it."""
    for name in FILES:
        truncate(folder.path / name, sizes[name])


def random_start(trainer: Trainer, folder: RunFolder, console: Console, stop: Interrupts) -> None:
    """The random agent's steps, as a phase of their own."""
    config, steps = trainer.config, random_steps(trainer.config)
    if not trainer.bonus.random_start:
        return
    if steps < config.bonus_options.random_steps:
        wanted = config.bonus_options.random_steps
        say(console, f"random agent: {steps:,} steps instead of {wanted:,}, a tenth of this short run")
    per_step = config.all_envs * config.env.frame_skip
    with Phase(console, "random agent", steps * per_step) as phase:
        for step in trainer.random_start():
            phase.advance(step * per_step)
            if agreed(trainer.ranks, stop):
                text = f"stopped before the first rollout; begin again: rnd resume {folder.path}"
                raise InterruptedRunError(text, stop.code or 0)


def agreed(ranks: Ranks, stop: Interrupts) -> bool:
    """All ranks leave at the same moment, whichever was told to."""
    code = int(ranks.largest(stop.code or 0)[0])
    stop.code = code or None
    return code > 0


def work(
    trainer: Trainer, folder: RunFolder, console: Console, stop: Interrupts, about: dict[str, Any] | None = None
) -> None:
    """Train to the end, or until told to stop; whatever comes, what is done is on the disk."""
    writers = make_writers(trainer, folder)
    try:
        last: Row = about["row"] if about else {}
        keeper = Keeper(trainer, folder, writers, trainer.iteration if about else None)
        keeper.save(last)
        last = loop(trainer, writers, keeper, console, stop, last)
        keeper.save(last)
    except LostRankError as error:  # it may be noticed anywhere
        raise LostRankError(f"{error}; {how_to_go_on(folder)}") from error
    finally:
        trainer.collector.close()  # before the environments: a rollout may be under way
        writers.close()
    farewell(folder, last, console, "stopped" if stop.code else "finished")
    if stop.code is not None and trainer.iteration < trainer.config.iterations:
        raise InterruptedRunError(f"saved at iteration {trainer.iteration}; go on: rnd resume {folder.path}", stop.code)


def loop(trainer: Trainer, writers: Writers, keeper: Keeper, console: Console, stop: Interrupts, last: Row) -> Row:
    """Consume the training loop: record every iteration, show it, and save now and then."""
    config, row = trainer.config, last
    clock = time.monotonic()
    with Phase(console, "training", config.iterations * config.frames_per_rollout, trainer.frames) as phase:
        for row in rows(trainer, keeper, last):
            now = time.monotonic()
            seconds, clock = now - clock, now
            writers.write(row, timing(trainer, seconds))
            phase.advance(trainer.frames, row)
            if row["iteration"] == 1:
                announce(config, phase.rate, console)
            if agreed(trainer.ranks, stop):
                break
            if trainer.ranks.largest(keeper.due)[0]:
                save_or_warn(keeper, row, console)
    return row


def timing(trainer: Trainer, seconds: float) -> Row:
    """Where the wall time of an iteration went. With --overlap the parts run side by side and add up to more."""
    parts = trainer.collector.clock.lap() | trainer.clock.lap()
    speed = trainer.config.frames_per_rollout / max(seconds, 1e-9)
    return {"seconds": seconds, "frames_per_second": speed, **parts, "other": max(0.0, seconds - sum(parts.values()))}


def rows(trainer: Trainer, keeper: Keeper, last: Row) -> Iterator[Row]:
    """The rows of the training loop. A run that breaks down says how to go on.

    A loss that is not finite leaves its state behind: going on from an earlier checkpoint may meet it again.
    """
    row = last
    try:
        for row in trainer.train():
            yield row
    except NonFiniteLossError as error:
        path = keeper.save_failed(row)
        raise RunError(f"{error}; the state is in {path}") from error
    except LostRankError:
        raise
    except RunError as error:
        raise RunError(f"{error}; {how_to_go_on(keeper.folder)}") from error


def how_to_go_on(folder: RunFolder) -> str:
    return f"to go on from the last checkpoint: rnd resume {folder.path}"


def save_or_warn(keeper: Keeper, row: Row, console: Console) -> None:
    """A disk that is full now may have room at the next checkpoint: the run goes on."""
    try:
        keeper.save(row)
    except NotSavedError as error:
        console.print(f"[red]error:[/red] {error}; training goes on", highlight=False, soft_wrap=True)


def make_writers(trainer: Trainer, folder: RunFolder) -> Writers:
    config = trainer.config
    if not trainer.ranks.leads:
        return Writers([])
    # TensorBoard drops what an earlier process wrote after the checkpoint.
    writers: list[Writer] = [
        CsvWriter(folder.path),
        TensorBoardWriter(folder.path, purge_step=trainer.frames + 1),
        PlacesWriter(folder.path, trainer.episodes),
    ]
    if config.wandb:
        writers.append(WandbWriter(folder.path, folder.path.name, config.to_dict()))
    return Writers(writers)


def say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def banner(trainer: Trainer, folder: RunFolder, console: Console) -> None:
    config, spec = trainer.config, trainer.env.spec
    parameters = sum(p.numel() for p in trainer.learner.parameters)
    say(
        console,
        f"{config.env.id}: {config.all_envs:,} environments ({spec.backend}), bonus {config.bonus}, "
        f"policy {config.policy}, {parameters:,} trained parameters, {place(config, str(trainer.device))}",
    )
    say(console, f"run folder: {folder.path}")


def announce(config: Config, rate: float, console: Console) -> None:
    """How long the whole run takes at the speed of the first iteration."""
    total = config.iterations * config.frames_per_rollout
    speed = f"{duration(total / rate)} at {count(rate)} frames/s"
    say(console, f"{count(total)} frames in {config.iterations:,} rollouts take {speed}")


def farewell(folder: RunFolder, last: Row, console: Console, word: str) -> None:
    """The result, and where everything is."""
    say(console, f"{word}: " + ", ".join(f"{title} {text}" for title, text in shown(last)[:4]))
    say(console, f"  metrics      {folder.path / 'metrics.csv'}")
    say(console, f"  tensorboard  tensorboard --logdir {folder.path / 'tensorboard'}")
    say(console, f"  config       {folder.path / 'config.json'}")
    say(console, f"  report       {folder.path / 'report.html'}, after: rnd report {folder.path}")
