"""How the program prints: text as it is, on streams that never stop a run. Worker processes import this: no rich."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = range(40, 1000)
"""Widths of the terminal that tables and --help are laid out for: a narrower one takes minutes."""


def say(console: Console, text: str) -> None:
    """Print `text` without markup, highlighting or wrapping, and without what would steer the terminal."""
    console.print(printable(text), highlight=False, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """A line to standard error, for where there is no console."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """`text` with control characters as they are written in Python: names and configs may be a stranger's."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


class QuietOutput:
    """A standard stream that goes quiet where it would fail: a closed pipe or a full disk does not stop a run."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._silence(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._silence(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _silence(self, error: OSError) -> None:
        """From here on everything goes to the null device, also what is still buffered."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)
        if error.errno not in (errno.EPIPE, errno.EIO):  # nobody reads it any more: a closed pipe or terminal
            write_error(
                f"rnd: standard output fails ({error.strerror}): nothing more is printed, the command continues"
            )


def protect_output() -> None:
    """Let standard output and error neither fail nor lack a character. Called before anything is printed."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller: the next file to be opened would get its number
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            stream = os.fdopen(descriptor, "w")
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, QuietOutput(stream))
    columns = shutil.get_terminal_size().columns
    if columns not in COLUMNS:
        os.environ["COLUMNS"] = str(min(max(columns, COLUMNS.start), COLUMNS.stop))


def write_error(line: str) -> None:
    """A line to standard error, also from a signal handler, which must not enter a stream twice."""
    with suppress(OSError):
        os.write(2, f"{line}\n".encode())
