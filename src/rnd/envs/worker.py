"""An environment worker process: steps its share of the environments when told to. Never imports torch.

A step is ordered by one byte in a pipe of the worker's own and answered by four in a pipe that all workers share; what
is stepped lies in shared memory. Everything else (reset, save, load, errors) is a message over a socket. The worker
goes when its pipe closes, and, should it be stuck in an environment just then, by a signal from the kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import struct
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rnd.config import Config
from rnd.envs.blobs import join, split
from rnd.envs.cells import make_cell
from rnd.envs.failures import describe
from rnd.envs.shared_arrays import Layout, SharedArrays
from rnd.envs.spec import Cell, EnvSpec, buffer_layout

LETTER = b"\xff"
"""In place of a group's number: a message is under way over the socket."""
STEPPED = struct.Struct("<HH")
"""The answer to a step: worker and group."""
RESET, SAVE, LOAD = b"r", b"v", b"l"
"""Messages; LOAD is followed by the saved states."""
DATA, FAILED = b"d", b"e"
"""Answers to messages; DATA is followed by bytes, FAILED by JSON."""


def shared_layout(spec: EnvSpec, num_envs: int, workers: int) -> Layout:
    """The trainer's buffers, and what tells a slow worker from one that hangs."""
    return buffer_layout(spec, num_envs) | {
        "busy": ((workers,), np.int64),  # the environment in which a worker is just now
        "beats": ((workers,), np.int64),  # counts finished environment steps
    }


class Worker:
    """Some of the environments: the rows `parts[g]` of every group g."""

    def __init__(self, job: dict[str, Any]):
        self.config = Config.from_dict(job["config"])
        self.number, self.workers, self.fd = int(job["worker"]), int(job["workers"]), int(job["fd"])
        self.parts = [range(*part) for part in job["parts"]]
        self.rows = [i for part in self.parts for i in part]
        self.cells: dict[int, Cell] = {}
        self.current = self.rows[0]
        """The environment that an error came from."""

    def build(self) -> None:
        """Make the environments, and see the shared memory. Hundreds of them take minutes: every one is a beat."""
        first, *others = self.rows
        self.cells[first] = make_cell(self.config, first)
        spec = self.cells[first].spec
        shared = SharedArrays(shared_layout(spec, self.config.env.num_envs, self.workers), fd=self.fd)
        self.busy, self.beats = shared.arrays.pop("busy"), shared.arrays.pop("beats")
        self.out = shared.arrays
        for i in self._through(others):
            self.cells[i] = make_cell(self.config, i)

    def step(self, group: int) -> None:
        for i in self._through(self.parts[group]):
            self.cells[i].step(self.out, i)

    def answer(self, command: bytes, rest: bytes) -> bytes:
        """Do what a message says."""
        if command == RESET:
            for i in self._through(self.rows):
                self.cells[i].reset(self.out, i)
            return DATA
        if command == LOAD:
            blobs = iter(split(rest))
            for i in self._through(self.rows):
                self.cells[i].load(next(blobs), self.out, i)
            return DATA
        assert command == SAVE, command
        return DATA + join([self.cells[i].save() for i in self._through(self.rows)])

    def _through(self, rows: Iterable[int]) -> Iterator[int]:
        """The rows one after the other, telling the parent where we are."""
        for i in rows:
            self.current = i
            self.busy[self.number] = i
            self.beats[self.number] += 1
            yield i


def main(socket: int, lifeline: int, orders: int, answers: int) -> None:
    """Entry point of the process."""
    die_with_parent(lifeline)
    # The parent decides when to stop: it may want to save first when the whole job is told to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = Connection(socket)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has closed, or is gone
        worker = Worker(json.loads(connection.recv_bytes()))
        try:
            worker.build()
            connection.send_bytes(DATA)
            while order := os.read(orders, 1):
                if order == LETTER:
                    message = connection.recv_bytes()
                    connection.send_bytes(worker.answer(message[:1], message[1:]))
                else:
                    worker.step(order[0])
                    os.write(answers, STEPPED.pack(worker.number, order[0]))
        except (BrokenPipeError, ConnectionResetError):
            pass
        except Exception as error:
            line, trace = describe(error)
            connection.send_bytes(FAILED + json.dumps({"env": worker.current, "line": line, "trace": trace}).encode())
        for cell in worker.cells.values():
            cell.close()


def die_with_parent(lifeline: int) -> None:
    """Let the kernel end this process when the parent's end of a pipe closes, even inside a C call that never returns.

    Nothing is ever written to the pipe, so the only thing that can happen to it is its end, which raises SIGIO, which
    by default ends a process.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
