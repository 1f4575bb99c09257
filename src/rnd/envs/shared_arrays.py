"""Arrays in memory that processes share. It has no name, so nothing is left behind however the processes end."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np

from rnd.envs.spec import Arrays

Layout = dict[str, tuple[tuple[int, ...], Any]]

ALIGNMENT = 64
"""A cache line: no two arrays share one."""


class SharedArrays:
    """Arrays of a layout in one piece of memory, named by a file descriptor that a child process can inherit."""

    def __init__(self, layout: Layout, fd: int | None = None):
        size = sum(_padded(shape, dtype) for shape, dtype in layout.values())
        self.fd = _nameless_file(size) if fd is None else fd
        self.memory = mmap.mmap(self.fd, size)
        self.arrays: Arrays = {}
        start = 0
        for name, (shape, dtype) in layout.items():
            count = int(np.prod(shape))
            self.arrays[name] = np.frombuffer(self.memory, dtype, count, start).reshape(shape)
            start += _padded(shape, dtype)


def _padded(shape: tuple[int, ...], dtype: Any) -> int:
    size: int = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT


def _nameless_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("rnd-environments")
    else:  # macOS: a file that is unlinked as soon as it is open
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
