"""An environment worker process: steps its share of the environments. Never imports torch.

One byte in the worker's command pipe starts a step of a group; four bytes in the reply pipe, which all workers share,
report its end. Actions and results are in shared memory. Everything else (reset, save, load, errors) is a message over
a socket. The worker ends when its command pipe closes; if an environment hangs at that moment, a signal ends it (see
`die_with_parent`).
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
from rnd.envs.factories import make_env
from rnd.envs.process_io import FAULTS, SharedArrays, describe_error, pack_bytes, unpack_bytes
from rnd.envs.spec import Env, EnvSpec, Layout, buffer_layout, check_repeats
from rnd.foundation.console import protect_output

MESSAGE = b"\xff"
"""In the command pipe, instead of a group's number: read a message from the socket."""
STEPPED = struct.Struct("<HH")
"""In the reply pipe, after a step: worker and group."""
RESET, SAVE, LOAD, REPEATS = b"r", b"v", b"l", b"p"
"""Messages; LOAD is followed by the saved states."""
DATA, FAILED = b"d", b"e"
"""Replies to messages; DATA is followed by bytes, FAILED by JSON."""


def shared_layout(spec: EnvSpec, num_envs: int, workers: int) -> Layout:
    """The trainer's buffers, and two arrays by which the trainer finds workers that hang."""
    return buffer_layout(spec, num_envs) | {
        "busy": ((workers,), np.int64),  # the environment that a worker is working on
        "heartbeats": ((workers,), np.int64),  # how often a worker has begun to work on an environment
    }


class Worker:
    """Some of the environments: `rows_of_group[g]` of every group g."""

    def __init__(self, job: dict[str, Any]):
        self.config = Config.from_dict(job["config"])
        self.number, self.workers, self.fd = int(job["worker"]), int(job["workers"]), int(job["fd"])
        self.rows_of_group = [range(*rows) for rows in job["rows_of_group"]]
        self.rows = [i for rows in self.rows_of_group for i in rows]
        self.envs: dict[int, Env] = {}
        self.current = self.rows[0]
        """The environment that is named where an error is raised."""

    def build(self) -> None:
        """Make the environments and map the shared memory. Hundreds take minutes, so each one counts as a heartbeat."""
        first, *others = self.rows
        self.envs[first] = make_env(self.config, first)
        spec = self.envs[first].spec
        shared = SharedArrays(shared_layout(spec, self.config.env.num_envs, self.workers), fd=self.fd)
        self.busy, self.heartbeats = shared.arrays.pop("busy"), shared.arrays.pop("heartbeats")
        self.out = shared.arrays
        for i in self._visit(others):
            self.envs[i] = make_env(self.config, i)

    def step(self, group: int) -> None:
        for i in self._visit(self.rows_of_group[group]):
            self.envs[i].step(self.out, i)

    def reply(self, command: bytes, rest: bytes) -> bytes:
        """Execute a message; returns the reply."""
        if command == RESET:
            for i in self._visit(self.rows):
                self.envs[i].reset(self.out, i)
            return DATA
        if command == LOAD:
            saved = iter(unpack_bytes(rest))
            return DATA + bytes(self.envs[i].load(next(saved), self.out, i) for i in self._visit(self.rows))
        if command == REPEATS:
            return DATA + bytes([check_repeats(list(self.envs.values()))])
        assert command == SAVE, command
        return DATA + pack_bytes([self.envs[i].save() for i in self._visit(self.rows)])

    def _visit(self, rows: Iterable[int]) -> Iterator[int]:
        """Each of the rows in turn, written to shared memory for the parent."""
        for i in rows:
            self.current = i
            self.busy[self.number] = i
            self.heartbeats[self.number] += 1
            yield i


def main(socket: int, lifeline: int, commands: int, replies: int) -> None:
    """Entry point of the process; the arguments are file descriptors."""
    die_with_parent(lifeline)
    # The parent decides when to stop: where the whole job gets the signal, the parent saves first.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    protect_output()
    connection = Connection(socket)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has closed its end
        worker = Worker(json.loads(connection.recv_bytes()))
        try:
            worker.build()
            connection.send_bytes(DATA)
            while command := os.read(commands, 1):
                if command == MESSAGE:
                    message = connection.recv_bytes()
                    connection.send_bytes(worker.reply(message[:1], message[1:]))
                else:
                    worker.step(command[0])
                    os.write(replies, STEPPED.pack(worker.number, command[0]))
        except (BrokenPipeError, ConnectionResetError):
            pass
        except FAULTS as error:
            line, trace = describe_error(error)
            connection.send_bytes(
                FAILED + json.dumps({"who": f"environment {worker.current}", "line": line, "trace": trace}).encode()
            )
        for env in worker.envs.values():
            env.close()


def die_with_parent(lifeline: int) -> None:
    """Let the kernel end this process when the parent ends, even inside a C call that never returns.

    `lifeline` is the reading end of a pipe whose writing end only the parent has. Nothing is ever written to it. When
    the parent ends, the kernel closes the writing end and sends SIGIO, which ends a process by default.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
