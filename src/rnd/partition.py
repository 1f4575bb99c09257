"""A GPU in two parts (CUDA's green contexts): some multiprocessors for acting, the others for learning.

With `--overlap` the environments wait for the small kernels of a policy step, while the update fills the
GPU. A high priority lets such a kernel go first once a block of the update ends; a part of its own lets it start at
once.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

ACTING = 3 / 8
"""Share of the multiprocessors that acting has for itself. With half of an H200's, cuBLAS fails in the
update, which has the rest."""
GROUP = 8
"""Multiprocessors that cannot be divided. The driver rounds up to whole groups: three eighths of 132 would be 56."""

SM_RESOURCE = 1
NON_BLOCKING = 1
DEFAULT_STREAM = 1


class Resource(ctypes.Structure):
    """CUdevResource; only its size and the number of multiprocessors matter here."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("internal", ctypes.c_ubyte * 92),
        ("multiprocessors", ctypes.c_uint),
        ("rest", ctypes.c_ubyte * 44),
    ]


def streams(device: torch.device, acting: float = ACTING) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """A stream for acting and one for learning, on separate multiprocessors where the driver can (CUDA 12.5), and
    with acting first in any case."""
    try:
        return _split(device, acting)
    except (OSError, AttributeError, DriverError):
        return torch.cuda.Stream(device, priority=-1), torch.cuda.Stream(device)


class DriverError(Exception):
    """A driver call failed."""


@cache
def _split(device: torch.device, acting: float) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Made once per process: a driver has few such contexts, and it is unknown when the last tensor has left one."""
    torch.cuda.synchronize(device)  # the primary context exists
    driver = ctypes.CDLL("libcuda.so.1")
    number = torch.cuda.current_device() if device.index is None else device.index
    handle = ctypes.c_int()
    _check(driver.cuDeviceGet(ctypes.byref(handle), ctypes.c_int(number)))
    whole, small, large = Resource(), Resource(), Resource()
    _check(driver.cuDeviceGetDevResource(handle, ctypes.byref(whole), ctypes.c_int(SM_RESOURCE)))
    groups, wanted = ctypes.c_uint(1), ctypes.c_uint(max(GROUP, int(whole.multiprocessors * acting) // GROUP * GROUP))
    pointers = [ctypes.byref(x) for x in (small, groups, whole, large)]
    _check(driver.cuDevSmResourceSplitByCount(*pointers, ctypes.c_uint(0), wanted))
    return _stream(driver, handle, small, device, priority=-1), _stream(driver, handle, large, device, priority=0)


def _stream(driver: Any, handle: Any, part: Resource, device: torch.device, priority: int) -> torch.cuda.Stream:
    description, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _check(driver.cuDevResourceGenerateDesc(ctypes.byref(description), ctypes.byref(part), ctypes.c_uint(1)))
    _check(driver.cuGreenCtxCreate(ctypes.byref(context), description, handle, ctypes.c_uint(DEFAULT_STREAM)))
    _check(
        driver.cuGreenCtxStreamCreate(
            ctypes.byref(stream), context, ctypes.c_uint(NON_BLOCKING), ctypes.c_int(priority)
        )
    )
    return torch.cuda.ExternalStream(stream.value, device)


def _check(code: int) -> None:
    if code != 0:
        raise DriverError(code)
