"""One run from start to end: folder, environments, trainer, writers, checkpoints, progress."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from rnd import envs
from rnd.checkpoint import trust
from rnd.checkpoint.checkpointer import Checkpointer, NotSavedError
from rnd.checkpoint.folder import FILES, RunFolder
from rnd.checkpoint.interrupt import Interrupts
from rnd.checkpoint.metadata import check_fits
from rnd.checkpoint.saved_run import SavedRun
from rnd.config import Config
from rnd.config.components import resolve
from rnd.config.presets import preset
from rnd.device import memory
from rnd.device.devices import resolve_device
from rnd.device.graphs import WARM_UP, uses_graphs
from rnd.distributed import LostRankError, Ranks, process_group
from rnd.envs.interface import VectorEnv
from rnd.envs.local import LocalEnvs
from rnd.envs.registry import as_saved, cores
from rnd.foundation.console import say
from rnd.foundation.errors import InterruptedRunError, RunError
from rnd.foundation.files import read_errors
from rnd.foundation.text import count, duration
from rnd.metrics.health import RunHealth
from rnd.metrics.hints import Hints
from rnd.metrics.metrics import CsvWriter, Row, RunInfo, Writers, check_writers, make_writers, read_csv, truncate
from rnd.metrics.places import PlacesWriter
from rnd.metrics.progress import Phase, Trend, shown
from rnd.training.ppo import NonFiniteLossError
from rnd.training.random_agent import needs_random_start, random_steps
from rnd.training.trainer import Trainer

ESTIMATE_AFTER = 3.0
"""Seconds of training before its time is estimated: single iterations differ by half with `--overlap`."""


def start(config: Config, console: Console) -> RunFolder:
    """Train a new run, alone or as one of torchrun's processes."""
    config = resolve(config)
    check_writers(config)
    with process_group() as ranks, Interrupts() as stop, memory.guarded(config):
        ranks = ranks.on(config.device)
        config, console = ranks.config_of_new_run(config), console_of(ranks, console)
        with closing(make_envs(config, ranks)) as env:
            trainer = Trainer(config, env, ranks)
            folder = ranks.on_rank0(lambda: RunFolder.create(config))
            if ranks.is_rank0:
                trust.remember(config)
            with locked(folder, ranks):
                begin(trainer, folder, console, stop)
                work(trainer, folder, console, stop)
    return folder


def resume(
    path: Path,
    console: Console,
    frames: int | None = None,
    trusted: bool = False,
    given: Config | None = None,
) -> RunFolder:
    """Continue a run, exactly as if it had not been stopped; `frames` makes it longer (or shorter).

    With another number of ranks the environments are divided among those. Only rank 0 reads the checkpoint. `trusted`:
    code that the run names may be imported; see `rnd.checkpoint.trust`. `given`: a config of the same experiment, with
    the frames, device and writers to continue with; default: that of the folder.
    """
    with process_group() as ranks, Interrupts() as stop:
        folder, console = ranks.on_rank0(lambda: RunFolder.open(path)), console_of(ranks, console)
        with locked(folder, ranks):
            config = resumed_config(folder, ranks, frames, trusted, given)
            ranks, saved = ranks.on(config.device), SavedRun(folder)
            metadata = ranks.on_rank0(lambda: saved.read(console))
            if metadata and metadata["iteration"] >= config.iterations:
                done = f"{metadata['frames']:,}"
                more = f"to continue: rnd resume {path} --frames N, with N above {done}"
                say(console, f"{path} is finished: {done} frames; {more}")
                return folder
            emulated = as_saved(config, metadata["env"]) if metadata else config
            with memory.guarded(config), closing(make_envs(emulated, ranks)) as env:
                if metadata:
                    check_fits(metadata, config, env.spec)
                    ranks.on_rank0(lambda: saved.check_networks(config, env.spec))
                trainer = Trainer(config, env, ranks)
                saved.keep_damaged()
                if metadata:
                    restore(trainer, saved, metadata, console)
                else:
                    begin(trainer, folder, console, stop)
                if ranks.is_rank0:
                    folder.clear()
                    folder.write_json("config.json", config.to_dict())
                work(trainer, folder, console, stop, metadata)
    return folder


def resumed_config(
    folder: RunFolder, ranks: Ranks, frames: int | None, trusted: bool, given: Config | None = None
) -> Config:
    """This rank's config of a run that continues, checked."""
    config = ranks.on_rank0(lambda: trusted_config(folder, trusted))
    config = given or config
    with read_errors(folder.path / "config.json", "a config"):
        config.validate()
        config = resolve(ranks.config_of_resumed_run(config))
        config.validate()
    if frames is not None:
        config = dataclasses.replace(config, frames=frames)
        config.validate()
    check_writers(config)
    return config


def trusted_config(folder: RunFolder, trusted: bool) -> Config:
    config = folder.config()
    trust.check(config, folder.path / "config.json", trusted)
    return config


def make_envs(config: Config, ranks: Ranks) -> VectorEnv:
    """The environments, of which is known whether they repeat themselves. Refuses them first where their rollouts
    cannot fit into memory."""
    memory.check(config, memory.guess_observation(config), resolve_device(config, ranks))
    env = envs.make(config)
    try:
        env.check_repeats()
    except BaseException:
        env.close()
        raise
    return env


def console_of(ranks: Ranks, console: Console) -> Console:
    """Only rank 0 prints."""
    return console if ranks.is_rank0 else Console(quiet=True)


@contextmanager
def locked(folder: RunFolder, ranks: Ranks) -> Iterator[None]:
    """Rank 0 holds the folder for all."""
    with ExitStack() as stack:
        ranks.on_rank0(lambda: stack.enter_context(folder.lock()))
        yield


def begin(trainer: Trainer, folder: RunFolder, console: Console, stop: Interrupts) -> None:
    """The first steps of a run: the random agent, then the first observations."""
    if trainer.ranks.is_rank0:
        for name in FILES:
            truncate(folder.path / name, 0)
    banner(trainer, folder, console)
    random_start(trainer, folder, console, stop)
    trainer.start()


def restore(trainer: Trainer, saved: SavedRun, metadata: dict[str, Any], console: Console) -> None:
    """Restore trainer and files to the moment of a checkpoint, which rank 0 has read."""
    folder = saved.folder
    try:
        exact = trainer.load_state_dict(saved.state)
    except (LookupError, ValueError, RuntimeError, TypeError, AttributeError, ArithmeticError) as error:
        raise RunError(f"the checkpoint in {folder.path} does not fit this version of rnd: {error}") from error
    banner(trainer, folder, console)
    say(console, f"resumed at iteration {trainer.iteration:,}, {trainer.frames:,} frames")
    if trainer.ranks.all_max(len(trainer.env.restarted))[0]:
        say(console, f"{trainer.config.env.id} cannot continue unfinished episodes: new ones start")
    if not exact:
        before = device_text(Config.from_dict(metadata["config"]), metadata["device"])
        now = device_text(trainer.config, trainer.device.type)
        say(console, f"the run moves from {before} to {now}: its random draws differ from now on")
    if trainer.ranks.is_rank0:
        saved.rewind(trainer.iteration)


def device_text(config: Config, device: str) -> str:
    """Device and number of ranks of a run, as text."""
    return device if config.ranks == 1 else f"{device} on {config.ranks} ranks"


def random_start(trainer: Trainer, folder: RunFolder, console: Console, stop: Interrupts) -> None:
    """The random agent's steps, with a progress bar of their own."""
    config, steps = trainer.config, random_steps(trainer.config)
    if not needs_random_start(config, trainer.bonus):
        return
    if steps < config.bonus_options.random_steps:
        wanted = config.bonus_options.random_steps
        say(console, f"random agent: {steps:,} steps instead of {wanted:,}, a tenth of this short run")
    per_step = config.all_envs * config.env.frame_skip
    with Phase(console, "random agent", steps * per_step) as phase:
        for step in trainer.random_start():
            phase.advance(step * per_step)
            if any_rank_stopping(trainer.ranks, stop):
                text = f"stopped before the first rollout; begin again: rnd resume {folder.path}"
                raise InterruptedRunError(text, stop.code or 0)


def any_rank_stopping(ranks: Ranks, stop: Interrupts) -> bool:
    """Whether any rank got a signal: all ranks stop after the same iteration."""
    stop.check_parent()
    code = int(ranks.all_max(stop.code or 0)[0])
    stop.code = code or None
    return code > 0


def work(
    trainer: Trainer, folder: RunFolder, console: Console, stop: Interrupts, metadata: dict[str, Any] | None = None
) -> None:
    """Train to the end, or until a signal; write checkpoints before, between and after."""
    writers = Writers([])
    if trainer.ranks.is_rank0:
        info = RunInfo(folder.path, trainer.config, trainer.frames)
        writers = Writers([CsvWriter(folder.path), PlacesWriter(folder.path, trainer.episodes), *make_writers(info)])
    try:
        last: Row = metadata["row"] if metadata else {}
        checkpointer = Checkpointer(trainer, folder, writers, trainer.iteration if metadata else None)
        checkpointer.save(last)
        last, advice = loop(trainer, writers, checkpointer, console, stop, last)
        checkpointer.save(last)
    except LostRankError as error:  # any collective operation may raise it
        raise LostRankError(f"{error}; {how_to_resume(folder)}") from error
    finally:
        trainer.collector.close()  # before the environments: a rollout may still be running
        writers.close()
    summary(folder, last, console, "stopped" if stop.code else "finished")
    for line in advice:
        say(console, f"  {line}")
    if stop.code is not None and trainer.iteration < trainer.config.iterations:
        text = f"saved at iteration {trainer.iteration}; to continue: rnd resume {folder.path}"
        raise InterruptedRunError(text, stop.code)


def loop(
    trainer: Trainer, writers: Writers, checkpointer: Checkpointer, console: Console, stop: Interrupts, last: Row
) -> tuple[Row, list[str]]:
    """Consume the training loop: record and show every iteration, and write checkpoints when they are due. Returns the
    last row, and what the run should try."""
    config, row = trainer.config, last
    earlier = read_csv(checkpointer.folder.path / "metrics.csv")
    trend, health, warned = Trend(earlier), RunHealth(earlier, config), set[str]()
    compiling = WARM_UP + 1 if uses_graphs(config, trainer.device) else 0
    hints = Hints(config, trainer.episodes, idle_cores(trainer))
    clock, estimated = time.monotonic(), False
    with Phase(console, "training", config.iterations * config.frames_per_rollout, trainer.frames) as phase:
        if compiling:
            phase.warming_up = "compiling"
            say(console, f"compiling during the first {compiling} iterations: about half a minute")
        for number, row in enumerate(rows(trainer, checkpointer, last), 1):
            now = time.monotonic()
            seconds, clock = now - clock, now
            times = timing(trainer, seconds)
            writers.write(row, times)
            trend.add(row)
            health.add(row)
            phase.advance(trainer.frames, row, trend)
            for warning in health.warnings():
                if (kind := warning.partition(":")[0]) not in warned:  # each kind once
                    warned.add(kind)
                    say(console, f"warning: {warning}")
            for hint in hints.add(row, times):
                say(console, hint)
            if number == compiling:
                phase.restart()
            measured = phase.measured_seconds >= ESTIMATE_AFTER and trainer.frames < phase.total
            if number > compiling and not estimated and measured:
                estimated = True
                left = f"{count(phase.total - trainer.frames)} frames left"
                seconds_left = (phase.total - trainer.frames) / phase.rate
                say(console, f"{left}: {duration(seconds_left)} at {count(phase.rate)} frames/s")
            if any_rank_stopping(trainer.ranks, stop):
                break
            if trainer.ranks.all_max(checkpointer.due)[0]:
                save_or_warn(checkpointer, row, console)
    return row, health.warnings()


def idle_cores(trainer: Trainer) -> int:
    """Cores for worker processes where environments are stepped one by one in this process, unless `--env.workers 0`
    asked for that; 0 elsewhere."""
    env = trainer.config.env
    return min(cores(), env.num_envs) if isinstance(trainer.env, LocalEnvs) and env.workers is None else 0


def timing(trainer: Trainer, seconds: float) -> Row:
    """Wall-clock times of an iteration. With --overlap the parts run side by side and add up to more."""
    parts = trainer.collector.clock.lap() | trainer.clock.lap()
    speed = trainer.config.frames_per_rollout / max(seconds, 1e-9)
    return {"seconds": seconds, "frames_per_second": speed, **parts, "other": max(0.0, seconds - sum(parts.values()))}


def rows(trainer: Trainer, checkpointer: Checkpointer, last: Row) -> Iterator[Row]:
    """The rows of the training loop. The error of a run that fails names the command that continues it.

    After a loss that is not finite the state is kept: a run from an earlier checkpoint may fail in the same way.
    """
    row = last
    try:
        for row in trainer.train():
            yield row
    except NonFiniteLossError as error:
        path = checkpointer.save_failed(row)
        raise RunError(f"{error}; the state is in {path}") from error
    except LostRankError:
        raise
    except RunError as error:
        error.args = (f"{error}; {how_to_resume(checkpointer.folder)}",)  # the same error: it has the traceback
        raise


def how_to_resume(folder: RunFolder) -> str:
    return f"to continue from the last checkpoint: rnd resume {folder.path}"


def save_or_warn(checkpointer: Checkpointer, row: Row, console: Console) -> None:
    """A disk that is full now may have space at the next checkpoint: the run continues."""
    try:
        checkpointer.save(row)
    except NotSavedError as error:
        say(console, f"error: {error}; training continues")


def banner(trainer: Trainer, folder: RunFolder, console: Console) -> None:
    config, spec = trainer.config, trainer.env.spec
    parameters = sum(p.numel() for p in trainer.learner.parameters)
    first_choice = config.bonus == preset(config.env.id).bonus != "rnd"
    chosen = " (first choice where rewards are sparse; --bonus rnd is the paper's)" if first_choice else ""
    say(
        console,
        f"{config.env.id}: {config.all_envs:,} environments ({spec.backend}), bonus {config.bonus}{chosen}, "
        f"policy {config.policy}, {parameters:,} trained parameters, {device_text(config, str(trainer.device))}",
    )
    for note in spec.observation.notes:
        say(console, note)
    if not trainer.env.repeats:
        say(console, f"{spec.id} draws randomness from elsewhere than its seed: no run of it can be repeated exactly")
    say(console, f"run folder: {folder.path}")


def summary(folder: RunFolder, last: Row, console: Console, word: str) -> None:
    """The result, and the paths of what was written."""
    say(console, f"{word}: " + ", ".join(f"{title} {text}" for title, text in shown(last)[:4]))
    say(console, f"  metrics      {folder.path / 'metrics.csv'}")
    if (folder.path / "tensorboard").is_dir():  # not with --writers none
        say(console, f"  tensorboard  tensorboard --logdir {folder.path / 'tensorboard'}")
    say(console, f"  config       {folder.path / 'config.json'}")
    say(console, f"  report       {folder.path / 'report.html'}, after: rnd report {folder.path}")
