"""A GPU split in two (CUDA's green contexts): some multiprocessors for acting, the others for learning.

With `--overlap` the environments wait for the small kernels of a policy step, while the update fills the GPU. A high
priority lets such a kernel go first once a block of the update ends; multiprocessors of its own let it start at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch

from rnd.device.graphs import BESIDE

ACTING = 3 / 8
"""Share of the multiprocessors that acting has for itself."""
GROUP = 8
"""Multiprocessors per group. A group is never divided between the two partitions, so that thread block clusters of this
size run in both. The driver promises that for the groups it is asked for, not for the remainder."""

SM_RESOURCE = 1
NON_BLOCKING = 1
DEFAULT_STREAM = 1
ALL = 0
"""cuBLAS's value for no limit."""


class SMPartition(NamedTuple):
    """Some of a GPU's multiprocessors."""

    stream: torch.cuda.Stream
    multiprocessors: int = ALL
    cublas: ctypes.CDLL | None = None
    """None: the partition is the whole GPU."""

    @contextmanager
    def use(self) -> Iterator[None]:
        """Launch on this partition, ordered after earlier and before later work of the current stream."""
        outside = torch.cuda.current_stream()
        self.stream.wait_stream(outside)
        with torch.cuda.stream(self.stream), self._limited_cublas():
            yield
        outside.wait_stream(self.stream)

    @contextmanager
    def _limited_cublas(self) -> Iterator[None]:
        """Without a limit cuBLAS chooses kernels for all multiprocessors of the device, and some of them cannot be
        launched on fewer (CUBLAS_STATUS_EXECUTION_FAILED). A cuBLAS handle belongs to one thread, so autograd runs the
        backward pass in this one."""
        if self.cublas is None:
            yield
            return
        handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
        _check(self.cublas.cublasSetSmCountTarget(handle, ctypes.c_int(self.multiprocessors)))
        try:
            with torch.autograd.set_multithreading_enabled(False):
                yield
        finally:
            _check(self.cublas.cublasSetSmCountTarget(handle, ctypes.c_int(ALL)))


class Resource(ctypes.Structure):
    """CUdevResource; only its size and the number of multiprocessors matter here."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("internal", ctypes.c_ubyte * 92),
        ("multiprocessors", ctypes.c_uint),
        ("rest", ctypes.c_ubyte * 44),
    ]


def split_sms(device: torch.device, acting: float = ACTING) -> tuple[SMPartition, SMPartition]:
    """A partition for acting and one for learning, with separate multiprocessors where the driver can (CUDA 12.5), and
    with acting first in any case."""
    try:
        return _split(device, acting)
    except (OSError, AttributeError, LibraryError):
        return SMPartition(torch.cuda.Stream(device, priority=-1)), SMPartition(torch.cuda.Stream(device))


class LibraryError(Exception):
    """A call of the CUDA driver or of cuBLAS failed, or a GPU is too small for two partitions."""


@cache
def _split(device: torch.device, acting: float) -> tuple[SMPartition, SMPartition]:
    """Made once per process. A driver has few such contexts, and they cannot be freed: tensors may still be in use on
    them."""
    torch.cuda.synchronize(device)  # the primary context exists
    driver, cublas = ctypes.CDLL("libcuda.so.1"), _cublas()
    number = torch.cuda.current_device() if device.index is None else device.index
    handle = ctypes.c_int()
    _check(driver.cuDeviceGet(ctypes.byref(handle), ctypes.c_int(number)))
    small, large = _share(*_groups(driver, handle), acting)

    def partition(resources: list[Resource], priority: int) -> SMPartition:
        handles = _streams(driver, handle, resources, priority)
        stream, beside = (torch.cuda.ExternalStream(each, device) for each in handles)
        BESIDE[stream] = beside
        return SMPartition(stream, sum(x.multiprocessors for x in resources), cublas)

    return partition(small, priority=-1), partition(large, priority=0)


def _cublas() -> ctypes.CDLL:
    """The library that PyTorch has loaded."""
    library = ctypes.CDLL(f"libcublas.so.{str(torch.version.cuda).partition('.')[0]}")
    if not hasattr(library, "cublasSetSmCountTarget"):
        raise LibraryError("cuBLAS is too old for a limit")
    return library


def _groups(driver: Any, handle: Any) -> tuple[list[Resource], Resource]:
    """All whole groups of a GPU's multiprocessors, and those that are left over."""
    whole, rest = Resource(), Resource()
    _check(driver.cuDeviceGetDevResource(handle, ctypes.byref(whole), ctypes.c_int(SM_RESOURCE)))
    number = ctypes.c_uint(whole.multiprocessors // GROUP)
    groups = (Resource * number.value)()
    outputs = groups, ctypes.byref(number)
    inputs = ctypes.byref(whole), ctypes.byref(rest), ctypes.c_uint(0), ctypes.c_uint(GROUP)
    _check(driver.cuDevSmResourceSplitByCount(*outputs, *inputs))
    return list(groups)[: number.value], rest  # the driver sets the number that it made


def _share(groups: list[Resource], rest: Resource, acting: float) -> tuple[list[Resource], list[Resource]]:
    """The multiprocessors of acting and of learning. Learning also gets those that are too few for a group of their
    own."""
    whole = sum(x.multiprocessors for x in groups) + rest.multiprocessors
    number = max(1, int(whole * acting) // GROUP)
    if number >= len(groups):
        raise LibraryError("too few multiprocessors for two parts")
    return groups[:number], [*groups[number:], *([rest] if rest.multiprocessors else [])]


def _streams(driver: Any, handle: Any, resources: list[Resource], priority: int) -> list[int]:
    """Two streams on these multiprocessors."""
    description, context = ctypes.c_void_p(), ctypes.c_void_p()
    array = (Resource * len(resources))(*resources)
    _check(driver.cuDevResourceGenerateDesc(ctypes.byref(description), array, ctypes.c_uint(len(resources))))
    _check(driver.cuGreenCtxCreate(ctypes.byref(context), description, handle, ctypes.c_uint(DEFAULT_STREAM)))
    flags, streams = (ctypes.c_uint(NON_BLOCKING), ctypes.c_int(priority)), []
    for _ in range(2):
        stream = ctypes.c_void_p()
        _check(driver.cuGreenCtxStreamCreate(ctypes.byref(stream), context, *flags))
        assert stream.value is not None
        streams.append(stream.value)
    return streams


def _check(code: int) -> None:
    if code != 0:
        raise LibraryError(f"error {code}")
