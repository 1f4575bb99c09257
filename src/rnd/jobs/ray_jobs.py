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
from collections.abc import Iterator
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
from rnd.jobs.scheduler import STOPPED, Outcome, RunList, RunQueue, frames_done, job_files, limit_threads

MAX_RETRIES = 20
"""Times that a run may lose its worker. Machines are taken away often, but a run that kills its worker must end."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}
"""Ray sends no usage statistics, and does not change CUDA_VISIBLE_DEVICES for tasks without a GPU."""


@dataclass(frozen=True)
class Needs:
    """What one run needs."""

    cpus: int
    gpus: float

    def fit(self, found: dict[str, float]) -> int:
        """How many such runs a cluster trains at the same time."""
        return int(min(found.get(kind, 0) // size for kind, size in (("CPU", self.cpus), ("GPU", self.gpus)) if size))


class RayJobs:
    """A scheduler. `address` is the cluster's head (`host:6379`), `auto`, or `local` to start a cluster here."""

    def __init__(self, address: str, console: Console, cpus: int | None = None, gpus: float | None = None):
        self.address, self.console, self.cpus, self.gpus = address, console, cpus, gpus
        self._said: set[Needs] = set()

    def run(self, queue: RunQueue) -> Iterator[Outcome]:
        ray = connect(self.address)
        try:
            with Bars(self.console, queue) as bars:
                yield from self.train(ray, queue, bars)
        finally:
            ray.shutdown()

    def train(self, ray: Any, queue: RunQueue, bars: Bars) -> Iterator[Outcome]:
        """Start tasks, and yield each outcome when its task ends. Where this is interrupted, the tasks save a
        checkpoint and stop."""
        found, waiting = ray.cluster_resources(), iter(queue)
        # Tasks that wait tell a cluster to grow. A run that is still to be chosen is chosen when there is room for it.
        limit = queue.count if isinstance(queue, RunList) else 1
        running: dict[Any, PlannedRun] = {}
        """Ray's reference of a task to its run."""
        stopped: set[Any] = set()
        with Interrupts() as stop:  # after `connect`: Ray installs handlers of its own
            try:
                while True:
                    while len(running) < limit and (planned := next(waiting, None)):
                        needs = self.needs(found, planned)
                        limit = max(limit, needs.fit(found))
                        running[self.start(ray, planned, needs)] = planned
                    if not running:
                        return
                    ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
                    stop.raise_if_requested(STOPPED)
                    bars.show([planned for planned in running.values() if frames_done(planned)])
                    for ref in [ref for ref, planned in running.items() if ref not in stopped and queue.stops(planned)]:
                        stopped.add(ref)
                        ray.cancel(ref, force=False)
                    for ref in ready:
                        planned = running.pop(ref)
                        bars.end(planned)
                        yield Outcome(planned) if ref in stopped else outcome(ray, ref, planned)
            finally:
                for ref in running:
                    ray.cancel(ref, force=False)
                if running:
                    ray.wait(list(running), num_returns=len(running), timeout=60)

    def start(self, ray: Any, planned: PlannedRun, needs: Needs) -> Any:
        """Ray's reference of a new task."""
        if needs not in self._said:
            self._said.add(needs)
            say(self.console, f"runs on {self.address}; per run: {needs.cpus} CPUs, {needs.gpus:g} GPUs")
        limits = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "max_retries": MAX_RETRIES, "max_calls": 1}
        return ray.remote(**limits)(train_task).remote(str(prepare(planned, needs)))

    def needs(self, found: dict[str, float], planned: PlannedRun) -> Needs:
        """Resources of a run: the given values, or a GPU and its share of the CPUs, or a CPU where there is no GPU."""
        on_cpu = planned.config.device == "cpu"
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
