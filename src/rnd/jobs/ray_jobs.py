"""Planned runs as tasks of a Ray cluster (`rnd paper NAME --ray ADDRESS`).

Every run is a task with the CPUs and GPUs that it needs. It trains in the Ray worker itself, into the run folder, which
lies on a path that all machines share. When a worker or its machine dies, Ray starts the task again, and the run
continues from its newest checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from rnd.checkpoint.interrupt import Interrupts
from rnd.foundation.console import say
from rnd.foundation.errors import RunError, UserError, install
from rnd.foundation.files import open_regular, write_json
from rnd.jobs.local import POLL, Bars
from rnd.jobs.planned import PlannedRun
from rnd.jobs.process import train
from rnd.jobs.scheduler import STOPPED, Outcome, frames_done, job_files, limit_threads

MAX_RETRIES = 20
"""Times that a run may lose its worker. Machines are taken away often, but a run that kills its worker must end."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}
"""Ray sends no usage statistics, and does not change CUDA_VISIBLE_DEVICES for tasks without a GPU."""


@dataclass(frozen=True)
class Needs:
    """What one run needs."""

    cpus: int
    gpus: float


class RayJobs:
    """A scheduler. `address` is the cluster's head (`host:6379`), `auto`, or `local` to start a cluster here."""

    def __init__(self, address: str, console: Console, cpus: int | None = None, gpus: float | None = None):
        self.address, self.console, self.cpus, self.gpus = address, console, cpus, gpus

    def run(self, runs: Sequence[PlannedRun]) -> Iterator[Outcome]:
        ray = connect(self.address)
        try:
            needs = self.needs(ray.cluster_resources(), runs)
            limits = {"max_retries": MAX_RETRIES, "max_calls": 1}
            task = ray.remote(num_cpus=needs.cpus, num_gpus=needs.gpus, **limits)(train_task)
            running = {task.remote(str(prepare(planned, needs))): planned for planned in runs}
            say(self.console, f"{len(runs)} runs on {self.address}; per run: {needs.cpus} CPUs, {needs.gpus:g} GPUs")
            with Bars(self.console, runs) as bars:
                yield from self.wait(ray, running, bars)
        finally:
            ray.shutdown()

    def wait(self, ray: Any, running: dict[Any, PlannedRun], bars: Bars) -> Iterator[Outcome]:
        """Yield each outcome when its task ends. Where this is interrupted, the tasks save a checkpoint and stop.
        `running` maps Ray's references of the tasks to their runs."""
        with Interrupts() as stop:  # after `connect`: Ray installs handlers of its own
            try:
                while running:
                    ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
                    stop.raise_if_requested(STOPPED)
                    bars.show([planned for planned in running.values() if frames_done(planned)])
                    for ref in ready:
                        planned = running.pop(ref)
                        bars.end(planned)
                        yield outcome(ray, ref, planned)
            finally:
                for ref in running:
                    ray.cancel(ref, force=False)
                if running:
                    ray.wait(list(running), num_returns=len(running), timeout=60)

    def needs(self, found: dict[str, float], runs: Sequence[PlannedRun]) -> Needs:
        """Resources of a run: the given values, or a GPU and its share of the CPUs, or a CPU where there is no GPU."""
        on_cpu = all(planned.config.device == "cpu" for planned in runs)
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
    """The ray module, connected to the cluster and without its own output."""
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--ray needs Ray: {install('ray')}") from error
    where: dict[str, Any] = {"address": address} if address != "local" else {"include_dashboard": False}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        line = str(error).strip().splitlines()[0]
        raise UserError(f"no Ray cluster at {address}: {line}; start one with: ray start --head") from error
    return ray


def prepare(planned: PlannedRun, needs: Needs) -> Path:
    """Write the config file of a task and return its path. Paths are absolute: a worker has another current folder."""
    config = limit_threads(planned.config, needs.cpus, needs.gpus > 0)
    planned = replace(planned, config=replace(config, out=str(Path(config.out).resolve())))
    path, _ = job_files(planned)
    write_json(path, planned.config.to_dict())
    return path


def train_task(path: str) -> None:
    """The code of a task. Its output goes to the log beside its config, as with local jobs."""
    log = Path(path).with_suffix(".log")
    with open_regular(log, "a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            train(Path(path))
        except Exception as error:  # one that Ray can pickle, with a message for people
            raise RunError(" ".join(f"{error}".split()) or type(error).__name__) from None
    sys.stdout.flush()


def outcome(ray: Any, ref: Any, planned: PlannedRun) -> Outcome:
    """How a task ended."""
    try:
        ray.get(ref)
        return Outcome(planned)
    except ray.exceptions.RayTaskError as error:
        problem = str(error.cause)
    except ray.exceptions.RayError as error:
        problem = str(error).strip().splitlines()[0]
    return Outcome(planned, f"{problem} (full log: {job_files(planned)[1]})")
