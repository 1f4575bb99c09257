"""Cells as tasks of a Ray cluster (`rnd paper NAME --ray ADDRESS`): a cell that loses its machine goes on elsewhere.

Every cell is a task with the CPUs and GPUs that it needs. It trains in the Ray worker itself, into the run folder,
which lies on a path that all machines share. When a worker or its machine dies, Ray starts the task again, and the cell
goes on from its newest checkpoint, as every cell does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rnd.envs.registry import emulator_threads
from rnd.errors import RunError, UserError
from rnd.paper.jobs import Outcome
from rnd.paper.local import POLL, Bars, cell_files, frames_done
from rnd.paper.plan import Cell
from rnd.record.files import write_atomically

if TYPE_CHECKING:
    pass

LIVES = 20
"""Times that a cell may lose its worker: machines are taken away often, but a cell that kills its worker must end."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}
"""Ray calls nobody, and leaves CUDA_VISIBLE_DEVICES alone for tasks that ask for no GPU."""


@dataclass(frozen=True)
class Task:
    """One cell under way."""

    cell: Cell
    ref: Any

    def frames(self) -> int:
        return frames_done(self.cell)


@dataclass(frozen=True)
class Needs:
    """Of one cell."""

    cpus: int
    gpus: float


class RayJobs:
    """Cells on a cluster. ADDRESS is that of its head (`host:6379`), `auto`, or `local` to start one here."""

    def __init__(self, address: str, console: Console, cpus: int | None = None, gpus: float | None = None):
        self.address, self.console, self.cpus, self.gpus = address, console, cpus, gpus

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        ray = connect(self.address)
        try:
            needs = self.needs(ray.cluster_resources(), cells)
            task = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=LIVES, max_calls=1)(train_cell)
            running = [Task(cell, task.remote(str(prepare(cell, needs)))) for cell in cells]
            text = f"{len(cells)} cells on {self.address}, CPUs a cell: {needs.cpus}, GPUs: {needs.gpus:g}"
            self.console.print(text, highlight=False)
            with Bars(self.console, cells) as bars:
                yield from self.wait(ray, running, bars)
        finally:
            ray.shutdown()

    def wait(self, ray: Any, running: list[Task], bars: Bars) -> Iterator[Outcome]:
        """Each when it ends. Interrupted, the tasks are asked to save themselves."""
        try:
            while running:
                ready, _ = ray.wait([task.ref for task in running], num_returns=1, timeout=POLL)
                bars.show([task for task in running if task.frames()])
                for task in [task for task in running if task.ref in ready]:
                    running.remove(task)
                    bars.end(task)
                    yield outcome(ray, task)
        finally:
            for task in running:
                ray.cancel(task.ref, force=False)
            ray.wait([task.ref for task in running], num_returns=len(running), timeout=60) if running else None

    def needs(self, found: dict[str, float], cells: Sequence[Cell]) -> Needs:
        """Of a cell: what was asked for, or a GPU with its share of the CPUs, or one CPU where there are no GPUs."""
        on_cpu = all(cell.config.device == "cpu" for cell in cells)
        gpus = self.gpus if self.gpus is not None else float(bool(found.get("GPU")) and not on_cpu)
        share = found.get("CPU", 1) * gpus / found["GPU"] if gpus and found.get("GPU") else 1
        cpus = self.cpus if self.cpus is not None else max(1, int(share))
        if cpus > found.get("CPU", 0) or gpus > found.get("GPU", 0):
            raise UserError(
                f"a run needs {cpus} CPUs and {gpus:g} GPUs; the cluster has {found.get('CPU', 0):g} and "
                f"{found.get('GPU', 0):g}: lower --cpus or --gpus"
            )
        return Needs(cpus, gpus)


def connect(address: str) -> Any:
    """Ray, connected and silent."""
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    try:
        import ray
    except ImportError as error:
        raise UserError('--ray needs Ray: pip install "rnd[ray]"') from error
    options: dict[str, Any] = {"address": None if address == "local" else address, "include_dashboard": False}
    if address != "local":
        del options["include_dashboard"]
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        line = str(error).strip().splitlines()[0]
        raise UserError(f"no Ray cluster at {address}: {line}; start one with: ray start --head") from error
    return ray


def prepare(cell: Cell, needs: Needs) -> Path:
    """Write what the task reads. Paths are absolute: a worker stands in another folder."""
    env = (
        cell.config.env
        if cell.config.env.workers is not None
        else replace(cell.config.env, workers=workers(cell, needs))
    )
    config = replace(cell.config, env=env, out=str(Path(cell.config.out).resolve()))
    path, _ = cell_files(replace(cell, config=config))
    write_atomically(path, json.dumps(config.to_dict(), indent=2) + "\n")
    return path


def workers(cell: Cell, needs: Needs) -> int | None:
    """Atari uses all cores that it sees; here, those of the task."""
    return emulator_threads(needs.cpus, needs.gpus > 0) if cell.config.env.id.startswith("ALE/") else None


def train_cell(path: str) -> None:
    """What a Ray worker does. What the cell says goes to the log beside its config, as with local jobs."""
    from rnd.paper import cell

    log = Path(path).with_suffix(".log")
    with log.open("a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            cell.train(Path(path))
        except Exception as error:  # Ray must be able to pickle it, and people to read it
            raise RunError(" ".join(f"{error}".split()) or type(error).__name__) from None
    sys.stdout.flush()


def outcome(ray: Any, task: Task) -> Outcome:
    """How a task ended."""
    try:
        ray.get(task.ref)
        return Outcome(task.cell)
    except ray.exceptions.RayTaskError as error:
        problem = str(error.cause)
    except ray.exceptions.RayError as error:
        problem = str(error).strip().splitlines()[0]
    return Outcome(task.cell, f"{problem} (all of it: {cell_files(task.cell)[1]})")
