"""One row per iteration: `metrics.csv` holds what is the same for the same seed, `timing.csv` wall-clock times.

Writers never stop a run: a full disk is reported once and training continues.
"""

from __future__ import annotations

import csv
import os
import warnings
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from rnd.config import Config, WriterOptions
from rnd.config.components import WRITERS, option_group, writer_names
from rnd.foundation.files import open_regular

Row = dict[str, float | int | None]

COLUMNS_OF_0_1 = {"clip_share": "clip_fraction"}
"""Columns of tables that rnd 0.1 began. A resumed run goes on under their header."""

MAX_LINE = 2**16
MAX_CELLS = 2**24
"""Limit of a table that is read: half a million rows of 32 columns. A short row costs as much as one of 16 cells."""


@dataclass(frozen=True)
class RunInfo:
    """What a writer is constructed with, besides its options: `cls(run, options)`."""

    folder: Path
    config: Config
    frames: int
    """Frames at which this process starts. Later rows of an earlier process are not part of the run."""


class Writer(Protocol):
    """Records rows of metrics. A class may have a static `check()` that refuses what is missing before the run."""

    def write(self, row: Row, timing: Row) -> None: ...

    def flush(self) -> None:
        """Put what was written on the disk: the next checkpoint depends on it."""

    def close(self) -> None: ...


class CsvFile:
    """A CSV file with a fixed header, flushed after every row so that a killed run loses none."""

    def __init__(self, path: Path):
        self.columns: list[str] | None = None
        self._file = open_regular(path, "a+", newline="")
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._file.seek(0)
        if line := self._file.readline(MAX_LINE):
            self.columns = next(csv.reader([line]))

    def write(self, row: Row) -> None:
        if self.columns is None:
            self.columns = list(row)
            self._rows.writerow(self.columns)
        self._rows.writerow([row.get(COLUMNS_OF_0_1.get(name, name)) for name in self.columns])
        self._file.flush()

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class CsvWriter:
    """`metrics.csv` and `timing.csv` of a run folder."""

    def __init__(self, folder: Path):
        self.metrics = CsvFile(folder / "metrics.csv")
        self.timing = CsvFile(folder / "timing.csv")

    def write(self, row: Row, timing: Row) -> None:
        self.metrics.write(row)
        self.timing.write({"iteration": row["iteration"], **timing})

    def flush(self) -> None:
        self.metrics.flush()
        self.timing.flush()

    def close(self) -> None:
        self.metrics.close()
        self.timing.close()


class Writers:
    """All writers of a run. One that fails is reported once; the others and the run continue."""

    def __init__(self, writers: list[Writer]):
        self.writers = writers
        self._failed: set[int] = set()

    def write(self, row: Row, timing: Row) -> None:
        self._each(lambda writer: writer.write(row, timing))

    def flush(self) -> None:
        self._each(lambda writer: writer.flush())

    def close(self) -> None:
        self._each(lambda writer: writer.close())

    def _each(self, do: Callable[[Writer], None]) -> None:
        for writer in self.writers:
            try:
                do(writer)
            except OSError as error:
                if id(writer) not in self._failed:
                    self._failed.add(id(writer))
                    message = f"{type(writer).__name__} cannot write ({error}); training continues without these rows"
                    warnings.warn(message, RuntimeWarning, stacklevel=3)


def check_writers(config: Config) -> None:
    """Refuse writers that are not known or cannot work here."""
    for name in writer_names(config):
        getattr(WRITERS.load(name), "check", lambda: None)()


def make_writers(run: RunInfo) -> list[Writer]:
    """The writers that the config names."""
    options = run.config.writer_options
    return [
        WRITERS.load(name)(run, getattr(options, option_group(name), WriterOptions()))
        for name in writer_names(run.config)
    ]


def truncate(path: Path, size: int) -> None:
    """Cut a CSV file back to the size that a checkpoint recorded, and to whole lines."""
    if not path.exists():
        return
    with open_regular(path, "r+b") as file:
        kept = file.read(size)
        file.truncate(kept.rfind(b"\n") + 1)
        os.fsync(file.fileno())


def csv_rows(path: Path) -> Iterator[list[str]]:
    """The header of a metrics file and its rows. A half-written last line is left out, and rows that are too short or
    too long. Raises OSError or ValueError for what is not such a file."""
    with open_regular(path, "r", newline="") as file:
        try:
            rows = csv.reader(_lines(file))
            header, read = next(rows, []), 0
            yield header
            for row in rows:
                if len(row) == len(header):
                    yield row
                read += max(16, len(row))
                if read > MAX_CELLS:
                    raise ValueError(f"it has more than {MAX_CELLS:,} cells")
        except csv.Error as error:
            raise ValueError(str(error)) from error


def read_csv(path: Path) -> dict[str, array[float]]:
    """Columns of a metrics file; empty cells are NaN. Raises as `csv_rows`."""
    if not path.exists():
        return {}
    rows, cells = csv_rows(path), array("d")
    header = next(rows)
    for row in rows:
        cells.extend([float(cell or "nan") for cell in row])
    return {COLUMNS_OF_0_1.get(name, name): cells[i :: len(header)] for i, name in enumerate(header)}


def _lines(file: IO[str]) -> Iterator[str]:
    while (line := file.readline(MAX_LINE)).endswith("\n"):
        yield line
    if len(line) == MAX_LINE:
        raise ValueError(f"it has a line of more than {MAX_LINE:,} characters")
