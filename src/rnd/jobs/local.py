"""Planned runs in processes on this machine, a few at the same time, with one progress bar per run and one for all."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from rnd.checkpoint.interrupt import Interrupts
from rnd.envs.registry import cores, on_gpu
from rnd.foundation.console import say
from rnd.foundation.files import open_regular
from rnd.foundation.text import count, duration
from rnd.jobs.planned import PlannedRun
from rnd.jobs.process import last_line, start_process
from rnd.jobs.scheduler import STOPPED, Outcome, RunQueue, frames_done, job_files, limit_threads
from rnd.metrics.progress import LINE_EVERY

POLL = 0.5
"""Seconds between two checks of the jobs."""
STOP_TIMEOUT = 60.0
"""Seconds that interrupted jobs have to save a checkpoint."""


class Job:
    """One run in a process, with its share of the cores. Its output goes to a log beside its config."""

    def __init__(self, planned: PlannedRun, threads: int, alone: bool):
        self.planned = planned
        path, self.log = job_files(planned)
        config = planned.config
        config = config if alone else limit_threads(config, threads, on_gpu(config.device))
        self.stopped = False
        self._output = open_regular(self.log, "wb")
        self.process = start_process(config, path, self._output, os.environ | {"OMP_NUM_THREADS": str(threads)})

    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        """Let it save a checkpoint and end."""
        if not self.stopped:
            self.stopped = True
            self.process.terminate()

    def outcome(self) -> Outcome:
        self.close()
        if self.process.returncode == 0 or self.stopped:
            return Outcome(self.planned)
        last = last_line(self.log)
        return Outcome(self.planned, f"exit code {self.process.returncode}: {last} (full log: {self.log})")

    def close(self) -> None:
        """Stop the process with SIGTERM, on which it saves a checkpoint; after STOP_TIMEOUT with SIGKILL."""
        if not self.ended():
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
        self._output.close()


class LocalJobs:
    """A scheduler: at most `jobs` processes at the same time."""

    def __init__(self, jobs: int, console: Console):
        self.jobs, self.console = jobs, console

    def run(self, queue: RunQueue) -> Iterator[Outcome]:
        waiting, running = iter(queue), list[Job]()
        threads = max(1, cores() // self.jobs)
        with Interrupts() as stop, Bars(self.console, queue) as bars:
            try:
                while True:
                    while len(running) < self.jobs and (planned := next(waiting, None)):
                        running.append(Job(planned, threads, alone=self.jobs == 1))
                    if not running:
                        return
                    time.sleep(POLL)
                    stop.raise_if_requested(STOPPED)
                    bars.show([job.planned for job in running])
                    for job in [job for job in running if queue.stops(job.planned)]:
                        job.stop()
                    for job in [job for job in running if job.ended()]:
                        running.remove(job)
                        bars.end(job.planned)
                        yield job.outcome()
            finally:
                for job in running:
                    job.process.terminate()  # all at once, so that they save their checkpoints in parallel
                for job in running:
                    job.close()


class Bars:
    """Progress of all runs: bars in a terminal, otherwise a line every LINE_EVERY seconds."""

    def __init__(self, console: Console, queue: RunQueue):
        self.console, self.queue = console, queue
        self._ended_runs, self._ended_frames, self._before = 0, 0, dict[str, int]()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),  # a run's name is text
            BarColumn(bar_width=None),
            TextColumn("{task.fields[note]}"),
            console=console,
            expand=True,
            transient=True,
        )
        self._all = self._progress.add_task("all runs", total=queue.frames, note="")
        self._tasks: dict[str, TaskID] = {}
        self._begun = self._printed = time.monotonic()

    def __enter__(self) -> Bars:
        if self.console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._progress.stop()

    def show(self, running: Sequence[PlannedRun]) -> None:
        now = {planned.label: frames_done(planned) for planned in running}
        for name, frames in now.items():
            self._before.setdefault(name, frames)
        total = self.queue.frames
        done = min(self._ended_frames + sum(now.values()), total)  # a run that is stopped ends its iteration
        note = f"{self._ended_runs} of {self.queue.count} runs, {count(done)} of {count(total)} frames"
        note += self._time_left(done, total)
        self._progress.update(self._all, total=total, completed=done, note=note)
        for planned in running:
            name = planned.label
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(f"  {name}", total=planned.frames, note="")
            self._progress.update(self._tasks[name], completed=now[name])
        if not self.console.is_terminal and time.monotonic() - self._printed >= LINE_EVERY:
            self._printed = time.monotonic()
            say(self.console, f"running: {note}")

    def _time_left(self, done: int, total: int) -> str:
        """At the speed so far, without what runs had done before they were continued here."""
        played = done - sum(self._before.values())
        return f", {duration((total - done) * (time.monotonic() - self._begun) / played)} left" if played > 0 else ""

    def end(self, planned: PlannedRun) -> None:
        self._ended_runs += 1
        self._ended_frames += frames_done(planned)
        if planned.label in self._tasks:
            self._progress.remove_task(self._tasks.pop(planned.label))
