"""Byte strings of different lengths as one: the saved states of environments. Numpy and plain bytes only."""

from __future__ import annotations

import numpy as np


def join(blobs: list[bytes]) -> bytes:
    """The count, the sizes, then the strings."""
    sizes = np.array([len(blobs), *map(len, blobs)], "<i8")
    return sizes.tobytes() + b"".join(blobs)


def split(data: bytes) -> list[bytes]:
    """What `join` was given."""
    count = int(np.frombuffer(data, "<i8", 1)[0])
    sizes = np.frombuffer(data, "<i8", count, offset=8)
    ends = 8 * (count + 1) + np.cumsum(sizes)
    return [data[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
