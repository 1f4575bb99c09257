"""The one module that writes files, and that reads those which a stranger may have made.

What is written replaces the file before it at once: a reader sees the old one or the new one, never a part. Links are
not followed, and only regular files are replaced, so nothing outside the named folder changes. What is read is a
regular file of a bounded size: no file makes a command hang, or fills the memory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rnd.foundation.errors import UserError

UMASK = os.umask(0)  # reading it means setting it, so it is read once
os.umask(UMASK)

SMALL = 16 * 2**20
"""Largest size of a JSON file. As Python objects it can take 24 times its size."""
CHUNK = 2**20
DENSE = 2**30
"""Larger files must have contents: one that is nearly all hole costs nothing to make, and much to read."""

# --- writing ---------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` after the block, when it is on the disk."""
    check_replaceable(path)
    with naming(path):
        try:  # the name is fresh, and creating it fails where anything has it: also a link
            descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:64]}.", suffix=".tmp", dir=path.parent)
        except OSError as error:
            error.filename = str(path)  # what was asked for, and not the name beside it
            raise
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o666 & ~UMASK)  # mkstemp gives access to the owner only
                yield file
                file.flush()
                os.fsync(descriptor)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)  # where something failed


def write_atomically(path: Path, data: str | bytes) -> None:
    with replacing(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, json.dumps(data, indent=2) + "\n")


@contextmanager
def replacing_by_name(*paths: Path) -> Iterator[list[Path]]:
    """For libraries that write to a name: yields names in a private folder, whose files then replace `paths`."""
    for path in paths:
        check_replaceable(path)
    with tempfile.TemporaryDirectory(prefix="rnd-") as folder:
        private = [Path(folder, path.name) for path in paths]
        yield private
        for written, path in zip(private, paths, strict=True):
            with written.open("rb") as source, replacing(path) as file:
                shutil.copyfileobj(source, file)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, flushed to the disk: for folders that are renamed as a whole."""
    with naming(path), path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(path: Path, inside: Path) -> None:
    """Make a folder and those above it. Below `inside`, a run folder, none may be a link: it could lead anywhere."""
    root, path = (Path(os.path.abspath(p)) for p in (inside, path))  # noqa: PTH100  resolve() would follow the links
    for folder in (path, *path.parents) if path.is_relative_to(root) else ():
        if folder == root:
            break
        if folder.is_symlink():
            raise UserError(f"{folder} is a symbolic link, to {folder.readlink()}; nothing is written there: remove it")
    path.mkdir(parents=True, exist_ok=True)


def check_replaceable(path: Path) -> None:
    """Refuse to replace what is not a regular file: a link, a device, a folder."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(mode)} and is not replaced", str(path))


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the work whose result it is. Its folder exists."""
    check_replaceable(path)
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path} cannot be written: its folder is read-only; --out takes another place")


def cache_folder(name: str) -> Path:
    """Where files are kept that can be made or downloaded again; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnd" / name


def name_aside(path: Path) -> Path:
    """A name that nothing has, for a file that is kept: NAME.damaged-1, NAME.damaged-2 ..."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    return aside


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- reading ---------------------------------------------------------------------------------------


def open_regular(path: Path, mode: str, **text: Any) -> IO[Any]:
    """`open` that follows no link, does not wait for a FIFO, and refuses all but regular files with an OSError."""

    def opener(name: str, flags: int) -> int:
        try:
            descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise OSError(errno.ELOOP, "it is a symbolic link and is not followed", name) from None
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISREG(kind):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind_of(kind)} instead of a file", name)

    return open(path, mode, opener=opener, **text)


def read_file(path: Path, limit: int = SMALL) -> bytes:
    """The contents of a regular file that has at most `limit` bytes; OSError for others, before they are read."""
    with naming(path), open_regular(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"its {status.st_size:,} bytes are more than {limit:,}", str(path))
        if status.st_size > DENSE and 512 * status.st_blocks < status.st_size // 256:
            raise OSError(errno.EFBIG, f"its {status.st_size:,} bytes are nearly all holes", str(path))
        data: bytes = file.read(status.st_size)  # what it grows by meanwhile is left; `read` allocates what it is given
        return data


def chunks(path: Path, size: int | None = None) -> Iterator[bytes]:
    """A regular file, or its first `size` bytes, piece by piece."""
    with naming(path), open_regular(path, "rb") as file:
        while data := file.read(CHUNK if size is None else min(CHUNK, size)):
            size = None if size is None else size - len(data)
            yield data


def digest(path: Path, size: int | None = None) -> tuple[int, str]:
    """The length and the SHA-256 of a regular file, or of its first `size` bytes."""
    hashed, length = hashlib.sha256(), 0
    for data in chunks(path, size):
        hashed.update(data)
        length += len(data)
    return length, hashed.hexdigest()


def read_json(path: Path) -> Any:
    return json.loads(read_file(path))


@contextmanager
def read_errors(path: Path, what: str) -> Iterator[None]:
    """Errors of the code that parses a file become one line that names the file."""
    wrong = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, AssertionError)
    try:
        yield
    except UserError as reason:
        if str(path) in str(reason):
            raise
        raise UserError(f"{path}: {reason}") from reason
    except OSError as reason:
        raise UserError(f"{path} cannot be read: {reason.strerror or reason}") from reason
    except wrong as reason:
        detail = " ".join(f"{type(reason).__name__}: {reason}".split())
        raise UserError(f"{path} is not {what} ({detail[:200]})") from reason


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """The errors of the system name the file: those of a full disk do not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def kind_of(mode: int) -> str:
    kinds = {stat.S_IFLNK: "symbolic link", stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
    return f"a {kinds.get(stat.S_IFMT(mode), 'device')}"
