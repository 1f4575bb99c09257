"""Environments in worker processes that write into shared memory.

Legend: N environments, W workers, G groups.

Every worker holds a share of every group, so that all cores step one group while the policy is evaluated for the
other. Which worker steps an environment changes nothing: each has its own generator, and saved states are kept by
environment, so a run can go on with another number of workers.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection

import numpy as np
import torch

from rnd.config import Config
from rnd.envs.blobs import join, split
from rnd.envs.cells import make_cell
from rnd.envs.failures import environment_error
from rnd.envs.interface import Buffers, VectorEnv
from rnd.envs.local import saved_cells
from rnd.envs.shared_arrays import SharedArrays
from rnd.envs.spec import Arrays
from rnd.envs.worker import DATA, FAILED, LETTER, LOAD, RESET, SAVE, STEPPED, shared_layout
from rnd.errors import RunError

GROUPS = 2
START_SECONDS = 120.0
"""Time to start Python and to import: slow on a cold network disk."""
LOAD_SECONDS = 600.0
"""Time to restore one environment: one that is saved as its actions replays them."""
LOOK_SECONDS = 0.5
"""How often a silent worker is looked at."""

START_WORKER = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from rnd.envs.worker import main
main(*map(int, sys.argv[2:]))
"""


@dataclasses.dataclass
class Process:
    """One worker as its parent sees it."""

    popen: subprocess.Popen[bytes]
    connection: Connection
    lifeline: int
    """The pipe whose end ends the worker, whatever it is doing."""
    orders: int
    """The pipe for the bytes that start steps."""
    parts: list[range]
    """Its environments, group by group."""

    @property
    def rows(self) -> list[int]:
        return [i for part in self.parts for i in part]


class WorkerEnvs(VectorEnv):
    """Cells in worker processes."""

    def __init__(self, config: Config, workers: int, groups: int = GROUPS, remark: str = ""):
        """`remark` is added to what the start banner says about the backend."""
        probe = make_cell(config, 0)  # tells what the environment is, and what is wrong with it, in this process
        probe.close()
        spec = dataclasses.replace(
            probe.spec, backend=f"{probe.spec.backend}, {workers} worker{'s' if workers > 1 else ''}{remark}"
        )
        self.shared = SharedArrays(shared_layout(spec, config.env.num_envs, workers))
        self.busy, self.beats = self.shared.arrays.pop("busy"), self.shared.arrays.pop("beats")
        super().__init__(spec, config.env.num_envs, Buffers(spec, config.env.num_envs, self.shared.arrays), groups)
        self.timeout = config.env.timeout
        self.pinned = _pin(self.shared)
        self.waiting: list[set[int]] = [set() for _ in self.groups]
        """Workers that still have to answer for a group."""
        self.answers: dict[int, bytes] = {}
        self.heard: dict[int, tuple[int, float]] = {}
        """When a worker last gave a sign of life, and its count of beats then."""
        self.processes: list[Process] = []
        self.worker_of: dict[int, int] = {}
        self.answers_out, self.answers_in = os.pipe()
        self.open_fds = [self.shared.fd, self.answers_out, self.answers_in]
        self.poll = select.poll()
        self.poll.register(self.answers_out, select.POLLIN)
        try:
            for w in range(workers):
                self.processes.append(
                    self._start(config, w, [_share(w, workers, rows) for rows in self.groups], workers)
                )
            self._collect(max(START_SECONDS, self.timeout))
        except BaseException:
            self.close()
            raise

    # --- what the interface asks for ---------------------------------------------------------------

    def _reset(self) -> None:
        self._ask(RESET)

    def _send(self, group: slice) -> None:
        g = self.groups.index(group)
        for w, process in enumerate(self.processes):
            if process.parts[g]:
                self._order(w, bytes([g]))
                self.waiting[g].add(w)

    def _recv(self, group: slice) -> None:
        waiting = self.waiting[self.groups.index(group)]
        while waiting:
            self._listen(self.timeout)

    def _save(self) -> Arrays:
        blobs = [b""] * self.num_envs
        for process, data in zip(self.processes, self._ask(SAVE), strict=True):
            for i, blob in zip(process.rows, split(data), strict=True):
                blobs[i] = blob
        return {"cells": np.frombuffer(join(blobs), np.uint8)}

    def _load(self, state: Arrays) -> None:
        blobs = saved_cells(state)
        for w, process in enumerate(self.processes):
            self._write_letter(w, LOAD + join([blobs[i] for i in process.rows]))
        self._collect(max(LOAD_SECONDS, self.timeout))

    def close(self) -> None:
        """End the workers: ask by hanging up, and insist after a moment."""
        for process in self.processes:
            process.connection.close()
            os.close(process.orders)
        deadline = time.monotonic() + 2
        for process in self.processes:
            try:
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()
            os.close(process.lifeline)
        self.processes = []
        if self.pinned:
            _unpin(self.shared)
            self.pinned = False
        for fd in self.open_fds:
            os.close(fd)  # the memory lives on while arrays point into it
        self.open_fds = []

    # --- talking to the workers ----------------------------------------------------------------------

    def _start(self, config: Config, w: int, parts: list[range], workers: int) -> Process:
        here, there = multiprocessing.Pipe()
        (their_lifeline, lifeline), (their_orders, orders) = os.pipe(), os.pipe()
        fds = (there.fileno(), their_lifeline, their_orders, self.answers_in)
        popen = subprocess.Popen(
            [sys.executable, "-c", START_WORKER, json.dumps(sys.path), *map(str, fds)],
            stdin=subprocess.DEVNULL,
            pass_fds=(*fds, self.shared.fd),
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"},
            process_group=0,  # Ctrl-C is for the parent
        )
        there.close()
        os.close(their_lifeline)
        os.close(their_orders)
        job = {
            "config": config.to_dict(),
            "worker": w,
            "workers": workers,
            "parts": [(part.start, part.stop, part.step) for part in parts],
            "fd": self.shared.fd,
        }
        here.send_bytes(json.dumps(job).encode())
        self.poll.register(here.fileno(), select.POLLIN)
        self.worker_of[here.fileno()] = w
        self.heard[w] = (0, time.monotonic())
        return Process(popen, here, lifeline, orders, parts)

    def _ask(self, command: bytes) -> list[bytes]:
        """Tell all workers to do something, and give their answers."""
        for w in range(len(self.processes)):
            self._write_letter(w, command)
        return self._collect(self.timeout)

    def _order(self, w: int, order: bytes) -> None:
        try:
            os.write(self.processes[w].orders, order)
        except OSError as error:
            raise self._death(w) from error
        self.heard[w] = (int(self.beats[w]), time.monotonic())

    def _write_letter(self, w: int, message: bytes) -> None:
        self._order(w, LETTER)  # first: the worker must be reading when a message is longer than the socket holds
        try:
            self.processes[w].connection.send_bytes(message)
        except OSError as error:
            raise self._death(w) from error

    def _collect(self, timeout: float) -> list[bytes]:
        self.answers.clear()
        while len(self.answers) < len(self.processes):
            self._listen(timeout)
        return [self.answers[w] for w in range(len(self.processes))]

    def _listen(self, timeout: float) -> None:
        """Take the answers that are there, or wait for one."""
        events = self.poll.poll(1000 * min(LOOK_SECONDS, timeout / 2))
        for fd, _ in events:
            if fd == self.answers_out:
                for w, g in STEPPED.iter_unpack(os.read(fd, STEPPED.size * len(self.processes))):
                    self.waiting[g].discard(w)
            else:
                self._read_letter(self.worker_of[fd])
        if not events:
            self._look_for_a_hanging_worker(timeout)

    def _read_letter(self, w: int) -> None:
        try:
            message = self.processes[w].connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._death(w) from error
        if message[:1] == DATA:
            self.answers[w] = message[1:]
        else:
            assert message[:1] == FAILED, message
            told = json.loads(message[1:])
            raise environment_error(told["env"], told["line"], told["trace"])

    def _look_for_a_hanging_worker(self, timeout: float) -> None:
        now = time.monotonic()
        silent = set().union(*self.waiting) or set(range(len(self.processes))) - set(self.answers)
        for w in silent:
            beats, since = self.heard[w]
            if beats != int(self.beats[w]):
                self.heard[w] = (int(self.beats[w]), now)
            elif now - since > timeout:
                raise RunError(
                    f"environment {self.busy[w]} has not answered for {timeout:g} s (worker {w}); it hangs, or needs a "
                    "longer --env.timeout"
                )

    def _death(self, w: int) -> RunError:
        try:
            code = self.processes[w].popen.wait(1)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            how = "hung up"
        return RunError(
            f"environment worker {w} {how}; it was last in environment {self.busy[w]}; the run cannot go on without "
            "it: resume it from its last checkpoint"
        )


def _share(w: int, workers: int, rows: slice) -> range:
    """The environments of a group that worker w steps: every W-th, so that all have the same number, or nearly."""
    return range(rows.start + (w - rows.start) % workers, rows.stop, workers)


def _pin(shared: SharedArrays) -> bool:
    """Lock the memory for fast copies to the GPU, where there is one."""
    if not torch.cuda.is_available():
        return False
    address = torch.from_numpy(next(iter(shared.arrays.values()))).data_ptr()
    return int(torch.cuda.cudart().cudaHostRegister(address, len(shared.memory), 0)) == 0


def _unpin(shared: SharedArrays) -> None:
    torch.cuda.cudart().cudaHostUnregister(torch.from_numpy(next(iter(shared.arrays.values()))).data_ptr())
