"""Cells in processes of this machine, a few at once, with a bar for each and one for all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rnd.config import Config
from rnd.envs.registry import cores, emulator_threads, on_gpu
from rnd.paper.jobs import Outcome
from rnd.paper.plan import Cell
from rnd.record.files import write_atomically
from rnd.record.progress import LINE_EVERY, count

POLL = 0.5
PATIENCE = 60.0
"""Seconds that interrupted cells have to save themselves."""


class Job:
    """One cell in a process, with its share of the cores. Its output goes to a log beside its config."""

    def __init__(self, cell: Cell, threads: int, alone: bool):
        self.cell = cell
        self.config, self.log = cell_files(cell)
        config = cell.config if alone else _sharing(cell.config, threads)
        write_atomically(self.config, json.dumps(config.to_dict(), indent=2) + "\n")
        self._output: IO[bytes] = self.log.open("wb")
        # A session of its own: Ctrl-C reaches the scheduler alone, which then asks its cells to save themselves.
        # The pipe on standard input tells the cell when the scheduler dies without a word.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rnd", "paper", "--cell", str(self.config)],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )

    def ended(self) -> bool:
        return self.process.poll() is not None

    def outcome(self) -> Outcome:
        self.close()
        if self.process.returncode == 0:
            return Outcome(self.cell)
        lines = self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        return Outcome(self.cell, f"exit code {self.process.returncode}: {lines[-1]} (all of it: {self.log})")

    def frames(self) -> int:
        return frames_done(self.cell)

    def close(self) -> None:
        """Ask the process to save itself and leave; wait, then insist."""
        if not self.ended():
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
        self._output.close()


def _sharing(config: Config, threads: int) -> Config:
    """Atari would otherwise take all cores for its environments."""
    if config.env.workers is not None or not config.env.id.startswith("ALE/"):
        return config
    return replace(config, env=replace(config.env, workers=emulator_threads(threads, on_gpu(config.device))))


class LocalJobs:
    """A pool of processes."""

    def __init__(self, jobs: int, console: Console):
        self.jobs, self.console = jobs, console

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        waiting, running = list(cells), list[Job]()
        threads = max(1, cores() // self.jobs)
        with Bars(self.console, cells) as bars:
            try:
                while waiting or running:
                    while waiting and len(running) < self.jobs:
                        running.append(Job(waiting.pop(0), threads, alone=self.jobs == 1))
                    time.sleep(POLL)
                    bars.show(running)
                    for job in [job for job in running if job.ended()]:
                        running.remove(job)
                        bars.end(job)
                        yield job.outcome()
            finally:
                for job in running:
                    job.process.terminate()  # all at once, so that they save themselves side by side
                for job in running:
                    job.close()


class Running(Protocol):
    """A cell under way, here or elsewhere."""

    @property
    def cell(self) -> Cell: ...

    def frames(self) -> int: ...


class Bars:
    """Progress of all cells: bars in a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, cells: Sequence[Cell]):
        self.console = console
        self._total = sum(planned(cell) for cell in cells)
        self._before = sum(frames_done(cell) for cell in cells)
        self._ended = 0
        self._cells, self._over = len(cells), 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
            transient=True,
        )
        self._all = self._progress.add_task("all cells", total=self._total, note="")
        self._tasks: dict[int, TaskID] = {}
        self._printed = time.monotonic()

    def __enter__(self) -> Bars:
        if self.console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._progress.stop()

    def show(self, running: Sequence[Running]) -> None:
        now = {id(job): job.frames() for job in running}
        done = self._ended + sum(now.values())
        note = f"{self._over} of {self._cells} cells, {count(done)} of {count(self._total)} frames"
        self._progress.update(self._all, completed=done, note=note)
        for job in running:
            if id(job) not in self._tasks:
                name = f"  {job.cell.arm.name}, seed {job.cell.seed}"
                self._tasks[id(job)] = self._progress.add_task(name, total=planned(job.cell), note="")
            self._progress.update(self._tasks[id(job)], completed=now[id(job)])
        if not self.console.is_terminal and time.monotonic() - self._printed >= LINE_EVERY:
            self._printed = time.monotonic()
            self.console.print(f"running: {note}", highlight=False)

    def end(self, job: Running) -> None:
        self._over += 1
        self._ended += job.frames()
        if id(job) in self._tasks:
            self._progress.remove_task(self._tasks.pop(id(job)))


def cell_files(cell: Cell) -> tuple[Path, Path]:
    """Where the config and the log of a cell lie."""
    stem = Path(cell.config.out).parent / "cells" / cell.config.run_name
    stem.parent.mkdir(parents=True, exist_ok=True)
    return stem.with_suffix(".json"), stem.with_suffix(".log")


def planned(cell: Cell) -> int:
    return cell.config.iterations * cell.config.frames_per_rollout


def frames_done(cell: Cell) -> int:
    """Frames of the last whole row of the metrics; reads the end of the file only."""
    try:
        with (cell.path / "metrics.csv").open("rb") as file:
            head = file.readline().decode().rstrip("\n").split(",")
            file.seek(max(file.tell(), file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="replace").split("\n")[:-1]
    except OSError:
        return 0
    row = lines[-1].split(",") if lines else []
    return int(float(row[head.index("frames")])) if len(row) == len(head) and "frames" in head else 0
