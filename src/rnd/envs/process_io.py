"""What environments and worker processes exchange: packed states, errors, shared arrays. Never imports torch."""

from __future__ import annotations

import itertools
import math
import mmap
import os
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rnd.envs.spec import Arrays, Layout
from rnd.foundation.errors import RunError, UserError

ALIGNMENT = 64
"""A cache line: no two arrays share one."""


def pack_bytes(strings: list[bytes]) -> bytes:
    """Byte strings of different lengths as one: their number, their sizes, then the strings."""
    sizes = np.array([len(strings), *map(len, strings)], "<i8")
    return sizes.tobytes() + b"".join(strings)


def unpack_bytes(data: bytes) -> list[bytes]:
    """The inverse of `pack_bytes`. Raises ValueError for what it did not pack."""
    count = int(np.frombuffer(data, "<i8", 1)[0])
    sizes = np.frombuffer(data, "<i8", max(count, 0), offset=8)
    if (sizes < 0).any() or 8 * (count + 1) + sum(sizes.tolist()) != len(data):
        raise ValueError("packed states whose sizes are wrong")
    ends = 8 * (count + 1) + np.cumsum(sizes)
    return [data[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


FAULTS = (Exception, SystemExit)
"""What an environment may raise: `sys.exit` in it must not end the run without a message."""


def describe_error(error: BaseException) -> tuple[str, str]:
    """The error line after the environment's number, and the traceback; empty for errors of rnd, which need none."""
    if isinstance(error, RunError | UserError):
        return f": {error}", ""
    text = "".join(traceback.format_exception(error)).rstrip()
    return f" raised {type(error).__name__}: {error}", text


def environment_error(who: str, line: str, trace: str) -> RunError:
    """The error that stops the run because of `who`, for example "environment 3"."""
    error = RunError(f"{who}{line}")
    if trace:
        error.add_note(trace)
    return error


@contextmanager
def user_code(who: str) -> Iterator[None]:
    """Errors of an environment, in a block where it is not known which one, stop the run with their traceback."""
    try:
        yield
    except (RunError, UserError):
        raise
    except FAULTS as error:
        raise environment_error(who, *describe_error(error)) from error


def check_shape(who: str, name: str, values: Any, num_envs: int) -> None:
    """Refuse what an environment returned for all copies if it has not one number for each. None is nothing."""
    if values is not None and tuple(values.shape) != (num_envs,):
        wrong = tuple(values.shape)
        raise RunError(f"{who} returned {name} of the shape {wrong} instead of ({num_envs},), one number per copy")


class SharedArrays:
    """Arrays of a layout in one block of memory, identified by a file descriptor that a child process can inherit.

    The memory has no name in the file system, so no file remains however the processes end.
    """

    def __init__(self, layout: Layout, fd: int | None = None):
        sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in layout.values()]
        *starts, total = itertools.accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0)
        self.fd = _nameless_file(total) if fd is None else fd
        self.memory = mmap.mmap(self.fd, total)
        self.arrays: Arrays = {
            name: np.frombuffer(self.memory, dtype, math.prod(shape), start).reshape(shape)
            for (name, (shape, dtype)), start in zip(layout.items(), starts, strict=True)
        }


def _nameless_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("rnd-environments")
    else:  # macOS: a file that is unlinked as soon as it is open
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
