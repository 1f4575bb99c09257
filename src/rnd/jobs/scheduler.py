"""Training planned runs: what a scheduler is, and what every scheduler uses.

Each run is trained in a process of its own (`rnd train --run-config FILE`, or a Ray worker), so that a crash costs one
run only.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Protocol

from rich.console import Console

from rnd.config import Config
from rnd.envs.registry import emulator_threads
from rnd.jobs.planned import PlannedRun
from rnd.record.files import open_regular, read_json, understood, write_json


@dataclass(frozen=True)
class Outcome:
    """How a planned run ended."""

    planned: PlannedRun
    problem: str | None = None
    """None: it is finished. Otherwise the reason, in one line."""


class Scheduler(Protocol):
    """Trains runs somewhere: in processes on this machine, or on a cluster that shares the folder."""

    def run(self, runs: Sequence[PlannedRun]) -> Iterator[Outcome]:
        """Train all runs and yield each outcome when its run ends. A run that fails does not stop the others."""
        ...


def start_process(
    config: Config, path: Path, output: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """`rnd train` of `config`, which is written to `path`, in a process of its own.

    A session of its own, too: Ctrl-C reaches this process alone, which then stops its runs as it likes. The pipe on
    standard input closes when this process dies, also by SIGKILL.
    """
    write_json(path, config.to_dict())
    return subprocess.Popen(
        [sys.executable, "-m", "rnd", "train", "--run-config", str(path)],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )


def last_line(log: Path) -> str:
    """What a process said last."""
    with open_regular(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 2**16))
        lines: list[str] = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"


def train(path: Path) -> None:
    """Train the run whose config file is `path`, or resume it where its folder exists."""
    from rnd import run

    with understood(path, "a config"):
        config = Config.from_dict(read_json(path))
        config.validate()
    stop_with_the_scheduler()
    folder = Path(config.out) / config.run_name
    if folder.is_dir():
        run.resume(folder, Console())
    else:
        run.start(config, Console())


def stop_with_the_scheduler() -> None:
    """Send SIGTERM to this process when the pipe on its standard input closes, because the scheduler has ended. The run
    then saves a checkpoint and exits. Does nothing where standard input is no pipe."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=wait, daemon=True).start()


def job_files(planned: PlannedRun) -> tuple[Path, Path]:
    """Paths of the config and the log of a job."""
    stem = Path(planned.config.out) / "jobs" / planned.config.run_name
    stem.parent.mkdir(parents=True, exist_ok=True)
    return stem.with_suffix(".json"), stem.with_suffix(".log")


def limit_threads(config: Config, cpus: int, on_gpu: bool) -> Config:
    """The config with as many emulator threads as `cpus` cores allow. Atari would otherwise use all cores."""
    if config.env.workers is not None or not config.env.id.startswith("ALE/"):
        return config
    return replace(config, env=replace(config.env, workers=emulator_threads(cpus, on_gpu)))


def frames_done(planned: PlannedRun) -> int:
    """Frames of the last complete row of the metrics. Only the end of the file is read."""
    try:
        with open_regular(planned.path / "metrics.csv", "rb") as file:
            head = file.readline(4096).decode().rstrip("\n").split(",")
            file.seek(max(file.tell(), file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="replace").split("\n")[:-1]
        row = lines[-1].split(",") if lines else []
        return int(float(row[head.index("frames")])) if len(row) == len(head) else 0
    except (OSError, ValueError, OverflowError):
        return 0
