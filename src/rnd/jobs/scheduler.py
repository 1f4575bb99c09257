"""Training planned runs: what a scheduler is, and what every scheduler uses.

Each run is trained in a process of its own (process.py, or a Ray worker), so that a crash costs one run only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from rnd.config import Config
from rnd.envs.registry import emulator_threads
from rnd.foundation.files import open_regular
from rnd.jobs.planned import PlannedRun

STOPPED = "the runs are saved; repeat the same command to continue"


@dataclass(frozen=True)
class Outcome:
    """How a planned run ended."""

    planned: PlannedRun
    problem: str | None = None
    """None: it is finished, or the queue has stopped it. Otherwise the reason, in one line."""


class RunQueue(Protocol):
    """The runs of a scheduler. They may be chosen while others train: each is taken when there is room for it."""

    @property
    def count(self) -> int:
        """How many runs there are, as far as is known now."""

    @property
    def frames(self) -> int:
        """Frames of all of them."""

    def __iter__(self) -> Iterator[PlannedRun]: ...

    def stops(self, planned: PlannedRun) -> bool:
        """Whether a run that trains now is to end early. Asked again and again."""


class RunList:
    """A queue of runs that are all known."""

    def __init__(self, runs: Sequence[PlannedRun]):
        self.runs, self.count, self.frames = runs, len(runs), sum(planned.frames for planned in runs)

    def __iter__(self) -> Iterator[PlannedRun]:
        return iter(self.runs)

    def stops(self, planned: PlannedRun) -> bool:
        return False


class Scheduler(Protocol):
    """Trains runs somewhere: in processes on this machine, or on a cluster that shares the folder."""

    def run(self, queue: RunQueue) -> Iterator[Outcome]:
        """Train all runs and yield each outcome when its run ends. A run that fails does not stop the others. A signal
        ends all: they save a checkpoint, then `InterruptedRunError` is raised."""


def job_files(planned: PlannedRun) -> tuple[Path, Path]:
    """Paths of the config and the log of a job."""
    folder, name = Path(planned.config.out) / "jobs", planned.config.run_name  # a name may have dots
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.json", folder / f"{name}.log"


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
