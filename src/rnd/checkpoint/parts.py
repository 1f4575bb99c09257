"""A run in parts of a limited size: what is needed to resume it elsewhere, split and joined again.

FOLDER/parts.json       what the parts hold, with sizes and SHA-256
FOLDER/part-0001.bin    the files, each compressed (`packing.py`), one after the other, cut anywhere
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnd.checkpoint.checkpoint import MANIFEST, STATE, TENSORS, largest, sha256
from rnd.checkpoint.export import find_checkpoint
from rnd.checkpoint.folder import FILES, JSON, RunFolder, check_name, claim, temporary_folder
from rnd.checkpoint.packing import TABLE_RATIO, WEIGHTS_RATIO, pack, unpack, unpacked_limit
from rnd.foundation.errors import RunError, UserError
from rnd.foundation.files import (
    SMALL,
    chunks,
    digest,
    make_folder,
    read_errors,
    read_file,
    read_json,
    replacing,
    write_new,
)

PARTS_FORMAT = 2
INDEX = "parts.json"
MIN_PART = 64 * 1024
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
ROLLOUT_SIZE = 3 * 2**26
"""Bytes of tensors that are allowed however small they are compressed: with --overlap a checkpoint holds the frames of
a rollout, which are 116 MB for the paper's run and may all be black."""
SAVED_FILES = (TENSORS, STATE, MANIFEST)
ALLOWED = re.compile(
    rf"{'|'.join(map(re.escape, JSON + FILES))}|checkpoints/\d{{9,}}/({'|'.join(map(re.escape, SAVED_FILES))})"
)
"""Files that a run in parts may hold: no other name is ever written."""


def parse_size(text: str) -> int:
    """15MB, 2GiB or plain bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in UNITS:
        raise UserError(f"{text!r} is no size; write for example 15MB")
    size = int(float(match[1]) * UNITS[match[2].upper()])
    if size < MIN_PART:
        raise UserError(f"parts of {size} bytes are too small; nearest: 64KiB")
    return size


def export_parts(run: Path, out: Path, max_part: int | None) -> list[Path]:
    """Write the newest whole checkpoint of a run, and the files that belong to it, in parts."""
    files = collect(run)
    packed = {name: pack(data, planes=name.endswith(TENSORS)) for name, data in files.items()}
    joined = b"".join(packed.values())
    size = max_part or max(1, len(joined))
    chunks = [joined[at : at + size] for at in range(0, len(joined), size)]
    make_folder(out, run)
    if any(out.iterdir()):
        raise UserError(f"{out} is not empty; choose another --out")
    parts = {out / f"part-{i:04d}.bin": chunk for i, chunk in enumerate(chunks, 1)}
    for path, chunk in parts.items():
        write_new(path, chunk)
    index = {
        "format": PARTS_FORMAT,
        "name": run.resolve().name,
        "files": [
            {"name": name, "bytes": len(data), "packed": len(packed[name]), "sha256": sha256(data)}
            for name, data in files.items()
        ],
        "parts": [{"name": p.name, "bytes": len(chunk), "sha256": sha256(chunk)} for p, chunk in parts.items()],
    }
    write_new(out / INDEX, json.dumps(index, indent=2).encode())
    return [out / INDEX, *parts]


def collect(run: Path) -> dict[str, bytes]:
    """The files of a run as they were at its newest whole checkpoint."""
    while True:
        saved = find_checkpoint(run)
        where = f"checkpoints/{saved.path.name}"
        try:
            files = {f"{where}/{name}": read_file(saved.path / name, largest()) for name in SAVED_FILES}
            break
        except FileNotFoundError:  # a training run has removed it, and has written a newer one
            if saved.path.exists():
                raise
    tables = {
        name: b"".join(chunks(run / name, size)) for name, size in saved.metadata["sizes"].items() if name in FILES
    }
    return {name: read_file(run / name) for name in JSON if (run / name).exists()} | tables | files


def import_parts(folder: Path, out: Path, name: str | None = None) -> RunFolder:
    """Join parts into a run folder that `rnd resume` takes. Everything is checked before anything is written."""
    index = read_index(folder)
    name = name or index["name"]
    check_name(name)
    paths = check_parts(folder, index)
    out.mkdir(parents=True, exist_ok=True)
    total, free = sum(entry["bytes"] for entry in index["files"]), shutil.disk_usage(out).free
    if total > free:
        raise RunError(f"the run in {folder} needs {total:,} bytes, and {out} has {free:,}; make room, or choose --out")
    with temporary_folder(out) as temporary:
        reader = ByteReader(data for path in paths for data in chunks(path))
        for entry in index["files"]:
            path = temporary / entry["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.writelines(contents(entry, reader))
            if digest(path) != (entry["bytes"], entry["sha256"]):
                raise RunError(f"{entry['name']} in the parts of {folder} is altered: its hash differs")
        find_checkpoint(temporary)
        return RunFolder(claim(temporary, out, name, numbered=False))


def contents(entry: dict[str, Any], reader: ByteReader) -> Iterator[bytes]:
    """A file of the parts, unpacked; never more than the index announces."""
    left, packed = entry["bytes"], reader.take(entry["packed"])
    for data in unpack(packed, planes=entry["name"].endswith(TENSORS)):
        left -= len(data)
        if left < 0:
            raise RunError(f"{entry['name']} in the parts is larger than the index says")
        yield data


def read_index(folder: Path) -> dict[str, Any]:
    """The index, with nothing in it that was not checked."""
    path = folder / INDEX
    if not path.exists():
        raise UserError(f"{folder} holds no run in parts: it has no {INDEX}")
    with read_errors(path, "the index of a run in parts"):
        index: dict[str, Any] = read_json(path)
        if index["format"] != PARTS_FORMAT:
            raise UserError(f"{folder} has parts format {index['format']}; this rnd reads format {PARTS_FORMAT}")
        if not isinstance(index["name"], str):
            raise TypeError("the name is no text")
        for entry in (*index["files"], *index["parts"]):
            if type(entry["bytes"]) is not int or entry["bytes"] < 0 or not isinstance(entry["sha256"], str):
                raise TypeError(f"{entry!r:.80} has no size or hash")
        if any(type(entry["packed"]) is not int or entry["packed"] < 0 for entry in index["files"]):
            raise TypeError("a file has no compressed size")
        if sum(entry["packed"] for entry in index["files"]) != sum(part["bytes"] for part in index["parts"]):
            raise ValueError("files and parts differ in size")
        for entry in index["files"]:
            if not ALLOWED.fullmatch(entry["name"]):
                raise UserError(f"the parts hold {entry['name']!r:.80}, which is no file of a run; nothing was written")
            limit = size_limit(entry["name"], entry["packed"])
            if entry["packed"] > entry["bytes"] + entry["bytes"] // 64 + 4096:  # more than .xz ever adds
                raise ValueError(f"{entry['name']} is larger compressed than it is")
            if entry["bytes"] > limit:
                raise ValueError(f"{entry['name']} has {entry['bytes']:,} bytes, more than {limit:,}")
        if len({entry["name"] for entry in index["files"]}) < len(index["files"]):
            raise ValueError("a file is there twice")
    return index


def size_limit(name: str, packed: int) -> int:
    """Bytes that a file of the parts may have: few bytes must not become gigabytes."""
    if not name.endswith((TENSORS, *FILES)):
        return SMALL
    if name in FILES:
        return unpacked_limit(packed, TABLE_RATIO)
    return min(largest(), max(ROLLOUT_SIZE, unpacked_limit(packed, WEIGHTS_RATIO)))


def check_parts(folder: Path, index: dict[str, Any]) -> list[Path]:
    """The parts; refused where one is not what the index says. Sizes are compared before anything is read."""
    # Not the names that the index gives: they could point anywhere.
    parts = {folder / f"part-{i:04d}.bin": part for i, part in enumerate(index["parts"], 1)}
    sizes = (path for path, part in parts.items() if not path.is_file() or path.stat().st_size != part["bytes"])
    hashes = (path for path, part in parts.items() if digest(path)[1] != part["sha256"])
    if wrong := next(sizes, None) or next(hashes, None):
        raise RunError(f"{wrong} is missing, cut off or altered; copy it again")
    return [*parts]


class ByteReader:
    """Chunks of bytes, cut anew: `take(size)` yields the next `size` bytes, or what is left of them."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks, self._rest = chunks, b""

    def take(self, size: int) -> Iterator[bytes]:
        while size and (data := self._rest or next(self._chunks, b"")):
            yield data[:size]
            self._rest = data[size:]
            size -= min(size, len(data))
