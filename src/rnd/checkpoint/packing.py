"""Compressed files, of which a small one can inflate to gigabytes: an agent is one .xz, a run in parts is many.

A run is compressed in blocks, each unpacked by itself, so memory stays small. Before a block of tensors is compressed,
its bytes are sorted into planes: all first bytes of its 32-bit words, then all second bytes, and so on. Signs and
exponents, which repeat, then stand together; mantissas hardly shrink.
"""

from __future__ import annotations

import lzma
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rnd.foundation.errors import RunError

BLOCK = 8 * 2**20
WORD = 4
PRESET = 0  # 3 takes three times as long for 1% of a checkpoint
THREADS = 8
MEMORY = 2**26
"""Bytes that unpacking may take beside what is unpacked."""
FREE_SIZE = 2**26
WEIGHTS_RATIO, TABLE_RATIO = 2, 20
"""What a compressed file may become: `FREE_SIZE`, and so many times its size. Weights shrink little (the agents of the
zoo by a tenth), rows of numbers more."""


def unpacked_limit(packed: int, ratio: int) -> int:
    """Bytes that `packed` bytes may become."""
    return FREE_SIZE + ratio * packed


def decompress(data: bytes) -> bytes:
    """The contents of a compressed agent."""
    limit = unpacked_limit(len(data), WEIGHTS_RATIO)
    unpacker = lzma.LZMADecompressor(memlimit=MEMORY)
    unpacked = unpacker.decompress(data, max_length=limit)
    if not unpacker.eof:
        raise lzma.LZMAError(f"it is cut off, or holds more than {limit:,} bytes")
    return unpacked


def pack(data: bytes, planes: bool) -> bytes:
    def packed(start: int) -> bytes:
        block = data[start : start + BLOCK]
        return lzma.compress(to_planes(block) if planes else block, preset=PRESET)

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        return b"".join(pool.map(packed, range(0, len(data), BLOCK)))


def unpack(chunks: Iterable[bytes], planes: bool) -> Iterator[bytes]:
    """The blocks of what `pack` made, from pieces of any size. None is larger than BLOCK, whatever the data says."""
    unpacker, block = lzma.LZMADecompressor(memlimit=MEMORY), b""
    try:
        for data in chunks:
            while data:
                block += unpacker.decompress(data, max_length=BLOCK + 1 - len(block))
                if len(block) > BLOCK:
                    raise RunError(f"a compressed block holds more than {BLOCK:,} bytes")
                data = unpacker.unused_data
                if unpacker.eof:
                    yield from_planes(block) if planes else block
                    unpacker, block = lzma.LZMADecompressor(memlimit=MEMORY), b""
    except lzma.LZMAError as error:
        raise RunError(f"the compressed data is damaged ({error})") from error
    if block:
        raise RunError("the compressed data is cut off")


def to_planes(block: bytes) -> bytes:
    whole = len(block) // WORD * WORD
    return np.frombuffer(block, np.uint8, whole).reshape(-1, WORD).T.tobytes() + block[whole:]


def from_planes(block: bytes) -> bytes:
    whole = len(block) // WORD * WORD
    return np.frombuffer(block, np.uint8, whole).reshape(WORD, -1).T.tobytes() + block[whole:]
