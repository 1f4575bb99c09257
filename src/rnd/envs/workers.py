"""Environments in worker processes that write into shared memory.

Legend: N environments, w = number of a worker, g = number of a group.

Every worker holds a share of every group, so that all cores step one group while the policy is evaluated for the
other. It does not matter which worker steps an environment: each environment has its own generator, and saved states
are kept per environment, so a run can continue with another number of workers.
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
from rnd.envs.factories import make_env
from rnd.envs.interface import Buffers, Rows, VectorEnv
from rnd.envs.process_io import SharedArrays, environment_error, pack_bytes, unpack_bytes
from rnd.envs.spec import Arrays
from rnd.envs.worker import FAILED, LOAD, MESSAGE, REPEATS, RESET, SAVE, STEPPED, shared_layout
from rnd.foundation.errors import RunError

GROUPS = 2
START_SECONDS = 120.0
"""Time limit for starting Python and importing: slow on a cold network disk."""
LOAD_SECONDS = 600.0
"""Time limit for restoring one environment: one that is saved as its actions replays them."""
POLL_SECONDS = 0.5
"""Time between two checks for workers that hang."""

START_WORKER = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from rnd.envs.worker import main
main(*map(int, sys.argv[2:]))
"""


@dataclasses.dataclass
class Process:
    """The parent's side of one worker."""

    popen: subprocess.Popen[bytes]
    connection: Connection
    lifeline: int
    """A pipe whose closing ends the worker, even one that hangs (`die_with_parent`)."""
    commands: int
    """The pipe for the bytes that start steps."""
    rows_of_group: list[range]
    """Its environments, per group."""

    @property
    def rows(self) -> list[int]:
        return [i for rows in self.rows_of_group for i in rows]


class WorkerEnvs(VectorEnv):
    """Environments in worker processes."""

    def __init__(self, config: Config, workers: int, groups: int = GROUPS, remark: str = ""):
        """`remark` is added to `spec.backend`."""
        probe = make_env(config, 0)  # gives the spec, and raises in this process where the environment cannot be made
        probe.close()
        spec = dataclasses.replace(
            probe.spec, backend=f"{probe.spec.backend}, {workers} worker{'s' if workers > 1 else ''}{remark}"
        )
        self.shared = SharedArrays(shared_layout(spec, config.env.num_envs, workers))
        self.busy, self.heartbeats = self.shared.arrays.pop("busy"), self.shared.arrays.pop("heartbeats")
        super().__init__(spec, config.env.num_envs, Buffers(spec, config.env.num_envs, self.shared.arrays), groups)
        self.timeout = config.env.timeout
        # Pinned memory is copied faster to the GPU. `obs` is the first array of the block.
        self.address = torch.from_numpy(self.buffers["obs"]).data_ptr()
        cuda = torch.cuda.is_available()
        self.pinned = cuda and int(torch.cuda.cudart().cudaHostRegister(self.address, len(self.shared.memory), 0)) == 0
        self.waiting: list[set[int]] = [set() for _ in self.groups]
        """Per group, the workers that have not yet finished its step."""
        self.replies: dict[int, bytes] = {}
        self.last_heartbeat: dict[int, tuple[int, float]] = {}
        """Per worker, its count of heartbeats when it last changed, and the time."""
        self.processes: list[Process] = []
        self.worker_of: dict[int, int] = {}
        self.replies_out, self.replies_in = os.pipe()
        self.open_fds = [self.shared.fd, self.replies_out, self.replies_in]
        self.poll = select.poll()
        self.poll.register(self.replies_out, select.POLLIN)
        try:
            for w in range(workers):
                self.processes.append(self._start(config, w, workers))
            self._collect(max(START_SECONDS, self.timeout))
        except BaseException:
            self.close()
            raise

    # --- the interface -------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._request(RESET)

    def _send(self, group: slice) -> None:
        g = self.groups.index(group)
        for w, process in enumerate(self.processes):
            if process.rows_of_group[g]:
                self._command(w, bytes([g]))
                self.waiting[g].add(w)

    def _recv(self, group: slice) -> None:
        waiting = self.waiting[self.groups.index(group)]
        while waiting:
            self._receive(self.timeout)

    def _save(self) -> Arrays:
        saved = [b""] * self.num_envs
        for process, data in zip(self.processes, self._request(SAVE), strict=True):
            for i, string in zip(process.rows, unpack_bytes(data), strict=True):
                saved[i] = string
        return {"envs": np.frombuffer(pack_bytes(saved), np.uint8)}

    def _load(self, state: Arrays) -> None:
        saved = unpack_bytes(state["envs"].tobytes())
        for w, process in enumerate(self.processes):
            self._send_message(w, LOAD + pack_bytes([saved[i] for i in process.rows]))
        replies = self._collect(max(LOAD_SECONDS, self.timeout))
        for process, exact in zip(self.processes, replies, strict=True):
            self.restarted |= {i for i, loaded in zip(process.rows, exact, strict=True) if not loaded}

    def _repeats(self) -> bool:
        return all(reply == b"\1" for reply in self._request(REPEATS))

    def _state_layout(self) -> dict[str, Rows]:
        return {"envs": "packed"}

    def close(self) -> None:
        """End the workers: close their pipes, and kill those that have not ended after two seconds."""
        for process in self.processes:
            process.connection.close()
            os.close(process.commands)
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
            torch.cuda.cudart().cudaHostUnregister(self.address)
            self.pinned = False
        for fd in self.open_fds:
            os.close(fd)  # the memory stays while arrays point into it
        self.open_fds = []

    # --- messages to the workers ---------------------------------------------------------------------

    def _start(self, config: Config, w: int, workers: int) -> Process:
        rows_of_group = [_share(w, workers, rows) for rows in self.groups]
        here, there = multiprocessing.Pipe()
        (their_lifeline, lifeline), (their_commands, commands) = os.pipe(), os.pipe()
        fds = (there.fileno(), their_lifeline, their_commands, self.replies_in)
        popen = subprocess.Popen(
            [sys.executable, "-c", START_WORKER, json.dumps(sys.path), *map(str, fds)],
            stdin=subprocess.DEVNULL,
            pass_fds=(*fds, self.shared.fd),
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"},
            process_group=0,  # Ctrl-C is for the parent
        )
        there.close()
        os.close(their_lifeline)
        os.close(their_commands)
        job = {
            "config": config.to_dict(),
            "worker": w,
            "workers": workers,
            "rows_of_group": [(rows.start, rows.stop, rows.step) for rows in rows_of_group],
            "fd": self.shared.fd,
        }
        here.send_bytes(json.dumps(job).encode())
        self.poll.register(here.fileno(), select.POLLIN)
        self.worker_of[here.fileno()] = w
        self.last_heartbeat[w] = (0, time.monotonic())
        return Process(popen, here, lifeline, commands, rows_of_group)

    def _request(self, command: bytes) -> list[bytes]:
        """Send a message to all workers; returns their replies."""
        for w in range(len(self.processes)):
            self._send_message(w, command)
        return self._collect(self.timeout)

    def _command(self, w: int, command: bytes) -> None:
        try:
            os.write(self.processes[w].commands, command)
        except OSError as error:
            raise self._death_error(w) from error
        self.last_heartbeat[w] = (int(self.heartbeats[w]), time.monotonic())

    def _send_message(self, w: int, message: bytes) -> None:
        self._command(w, MESSAGE)  # first: a message longer than the socket's buffer needs a worker that reads it
        try:
            self.processes[w].connection.send_bytes(message)
        except OSError as error:
            raise self._death_error(w) from error

    def _collect(self, timeout: float) -> list[bytes]:
        self.replies.clear()
        while len(self.replies) < len(self.processes):
            self._receive(timeout)
        return [self.replies[w] for w in range(len(self.processes))]

    def _receive(self, timeout: float) -> None:
        """Read the replies that have arrived, or wait for one."""
        events = self.poll.poll(1000 * min(POLL_SECONDS, timeout / 2))
        for fd, _ in events:
            if fd == self.replies_out:
                for w, g in STEPPED.iter_unpack(os.read(fd, STEPPED.size * len(self.processes))):
                    self.waiting[g].discard(w)
                continue
            w = self.worker_of[fd]
            try:
                message = self.processes[w].connection.recv_bytes()
            except (EOFError, OSError) as error:
                raise self._death_error(w) from error
            if message[:1] == FAILED:
                raise environment_error(**json.loads(message[1:]))
            self.replies[w] = message[1:]  # after DATA
        if not events:
            self._check_for_hanging_workers(timeout)

    def _check_for_hanging_workers(self, timeout: float) -> None:
        now = time.monotonic()
        silent = set().union(*self.waiting) or set(range(len(self.processes))) - set(self.replies)
        for w in silent:
            count, since = self.last_heartbeat[w]
            if count != int(self.heartbeats[w]):
                self.last_heartbeat[w] = (int(self.heartbeats[w]), now)
            elif now - since > timeout:
                raise RunError(
                    f"environment {self.busy[w]} has not answered for {timeout:g} s (worker {w}); if it is only slow, "
                    "set a longer --env.timeout"
                )

    def _death_error(self, w: int) -> RunError:
        try:
            code = self.processes[w].popen.wait(5)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            how = "closed its pipe"
        return RunError(
            f"environment worker {w} {how}; it was last in environment {self.busy[w]}; resume the run from its last "
            "checkpoint"
        )


def _share(w: int, workers: int, rows: slice) -> range:
    """The environments of a group that worker w steps: every `workers`-th, for equal shares."""
    return range(rows.start + (w - rows.start) % workers, rows.stop, workers)
