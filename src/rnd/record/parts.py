"""A run in parts of a limited size: what is needed to resume it elsewhere, split and joined again.

FOLDER/parts.json       what the parts hold, with sizes and SHA-256
FOLDER/part-0001.bin    the files one after the other, cut anywhere
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rnd.errors import RunError, UserError
from rnd.record import checkpoint
from rnd.record.about import FILES
from rnd.record.checkpoint import MANIFEST, STATE, TENSORS, sha256
from rnd.record.export import find_checkpoint
from rnd.record.files import write_new
from rnd.record.folder import RunFolder, check_name, claim, temporary_folder

PARTS_FORMAT = 1
INDEX = "parts.json"
SMALLEST = 64 * 1024
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
RUN_FILES, SAVED_FILES = ("config.json", "run.json", "rooms.json"), (TENSORS, STATE, MANIFEST)
ALLOWED = re.compile(
    rf"{'|'.join(map(re.escape, RUN_FILES + FILES))}|checkpoints/\d{{9,}}/({'|'.join(map(re.escape, SAVED_FILES))})"
)
"""Files that a run in parts may hold: no other name is ever written."""


def parse_size(text: str) -> int:
    """15MB, 2GiB or plain bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in UNITS:
        raise UserError(f"{text!r} is no size; write for example 15MB")
    size = int(float(match[1]) * UNITS[match[2].upper()])
    if size < SMALLEST:
        raise UserError(f"parts of {size} bytes are too small; nearest: 64KiB")
    return size


def export_parts(run: Path, out: Path, max_part: int | None) -> list[Path]:
    """Write the newest whole checkpoint of a run, and the files that belong to it, in parts."""
    files = collect(run, find_checkpoint(run))
    stream = b"".join(files.values())
    size = max_part or max(1, len(stream))
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise UserError(f"{out} is not empty; choose another --out")
    parts = {out / f"part-{i:04d}.bin": chunk for i, chunk in enumerate(chunks, 1)}
    for path, chunk in parts.items():
        write_new(path, chunk)
    index = {
        "format": PARTS_FORMAT,
        "name": run.resolve().name,
        "files": [{"name": name, "bytes": len(data), "sha256": sha256(data)} for name, data in files.items()],
        "parts": [{"name": p.name, "bytes": len(chunk), "sha256": sha256(chunk)} for p, chunk in parts.items()],
    }
    write_new(out / INDEX, json.dumps(index, indent=2).encode())
    return [out / INDEX, *parts]


def collect(run: Path, saved: checkpoint.Checkpoint) -> dict[str, bytes]:
    """The files of a run as they were at a checkpoint."""
    files = {name: (run / name).read_bytes() for name in RUN_FILES}
    files |= {name: (run / name).read_bytes()[: saved.about["sizes"][name]] for name in FILES}
    where = f"checkpoints/{saved.path.name}"
    return files | {f"{where}/{name}": (saved.path / name).read_bytes() for name in SAVED_FILES}


def import_parts(folder: Path, out: Path, name: str | None = None) -> RunFolder:
    """Join parts into a run folder that `rnd resume` takes."""
    index = read_index(folder)
    name = name or str(index["name"])
    check_name(name)
    files = split_files(index, join(folder, index))
    out.mkdir(parents=True, exist_ok=True)
    with temporary_folder(out) as temporary:
        for file, data in files.items():
            (temporary / file).parent.mkdir(parents=True, exist_ok=True)
            write_new(temporary / file, data)
        find_checkpoint(temporary)
        return RunFolder(claim(temporary, out, name, numbered=False))


def read_index(folder: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_bytes())
        version = index["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} holds no run in parts: {INDEX} cannot be read ({error})") from error
    if version != PARTS_FORMAT:
        raise UserError(f"{folder} has parts format {version}; this rnd reads format {PARTS_FORMAT}")
    return index


def join(folder: Path, index: dict[str, Any]) -> bytes:
    chunks = []
    for i, part in enumerate(index["parts"], 1):
        path = folder / f"part-{i:04d}.bin"  # not the name that the index gives: it could point anywhere
        data = path.read_bytes() if path.is_file() else b""
        if len(data) != part["bytes"] or sha256(data) != part["sha256"]:
            raise RunError(f"{path} is missing, cut off or altered; copy it again")
        chunks.append(data)
    return b"".join(chunks)


def split_files(index: dict[str, Any], stream: bytes) -> dict[str, bytes]:
    files, at = {}, 0
    for entry in index["files"]:
        if not ALLOWED.fullmatch(entry["name"]):
            raise UserError(f"the parts hold {entry['name']!r}, which is no file of a run; nothing was written")
        data = stream[at : at + entry["bytes"]]
        at += entry["bytes"]
        if sha256(data) != entry["sha256"]:
            raise RunError(f"{entry['name']} in the parts is altered: its hash differs")
        files[entry["name"]] = data
    return files
