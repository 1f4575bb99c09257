"""Writing files so that nothing is lost: a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

UMASK = os.umask(0)  # reading it means setting it, so it is read once
os.umask(UMASK)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write to a temporary file in the same folder, flush to the disk, rename."""
    descriptor, temporary = tempfile.mkstemp(prefix=path.name, suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o666 & ~UMASK)  # mkstemp gives access to the owner only
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)  # where something failed


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, json.dumps(data, indent=2) + "\n")


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, flushed to the disk: for folders that are renamed as a whole."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
