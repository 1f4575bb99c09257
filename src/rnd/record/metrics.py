"""One row an iteration: `metrics.csv` holds what is the same for the same seed, `timing.csv` what the clock says.

Writers never stop a run: a full disk is reported once and training goes on.
"""

from __future__ import annotations

import csv
import io
import os
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from rnd.config import Config
from rnd.errors import UserError

Row = dict[str, float | int | None]


class Writer(Protocol):
    """Takes rows."""

    def write(self, row: Row, timing: Row) -> None: ...

    def flush(self) -> None:
        """Put on disk what was written: the next checkpoint counts on it."""

    def close(self) -> None: ...


class CsvFile:
    """A CSV file with a fixed header, flushed after every row so that a killed run loses none."""

    def __init__(self, path: Path):
        self.path = path
        self.columns: list[str] | None = None
        if path.exists() and path.stat().st_size:
            with path.open(newline="") as file:
                self.columns = next(csv.reader(file))
        self._file: io.TextIOBase = path.open("a", newline="")

    def write(self, row: Row) -> None:
        if self.columns is None:
            self.columns = list(row)
            self._line(self.columns)
        self._line([_text(row.get(name)) for name in self.columns])
        self._file.flush()

    def flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _line(self, values: list[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(values)
        self._file.write(text.getvalue())


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


class TensorBoardWriter:
    """The same numbers as TensorBoard scalars against frames."""

    def __init__(self, folder: Path, purge_step: int | None = None):
        self._writer = summary_writer(folder / "tensorboard", purge_step)

    def write(self, row: Row, timing: Row) -> None:
        step = row["frames"]
        for group, values in (("train", row), ("speed", timing)):
            for name, value in values.items():
                if value is not None and name != "frames":
                    self._writer.add_scalar(f"{group}/{name}", value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def summary_writer(folder: Path, purge_step: int | None) -> Any:
    """A writer whose file is the last by name.

    TensorBoard reads files in that order. Names begin with the second and go on with the process, so that a run that
    goes on within the same second could come before its past, which would then cut it off. A clock that was set back is
    not waited for.
    """
    from torch.utils.tensorboard import SummaryWriter

    earlier = {*folder.glob("events.out.tfevents.*")}
    for left in range(12, -1, -1):
        writer: Any = SummaryWriter(str(folder), purge_step=purge_step)
        own = {*folder.glob("events.out.tfevents.*")} - earlier
        if left == 0 or not earlier or not own or min(own) > max(earlier):
            break
        writer.close()
        for path in own:
            path.unlink()
        time.sleep(0.1)
    return writer


class WandbWriter:
    """Weights & Biases, where the user has installed it."""

    @staticmethod
    def check(config: Config) -> None:
        """What is missing is told before a run begins."""
        if config.wandb and find_spec("wandb") is None:
            raise UserError("--wandb needs Weights & Biases: pip install wandb")

    def __init__(self, folder: Path, name: str, config: dict[str, Any]):
        import wandb

        self._run: Any = wandb.init(project="rnd", name=name, dir=str(folder), config=config, resume="allow", id=name)

    def write(self, row: Row, timing: Row) -> None:
        values = {k: v for k, v in {**row, **timing}.items() if v is not None}
        self._run.log(values, step=row["frames"])

    def flush(self) -> None:
        """It sends by itself."""

    def close(self) -> None:
        self._run.finish()


class Writers:
    """All writers of a run. One that fails is reported once; the others and the run go on."""

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
                    message = f"{type(writer).__name__} cannot write ({error}); training goes on without these rows"
                    warnings.warn(message, RuntimeWarning, stacklevel=3)


def truncate(path: Path, size: int) -> None:
    """Cut a CSV file back to the bytes that a checkpoint remembers, and to whole lines."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        kept = file.read(size)
        file.truncate(kept.rfind(b"\n") + 1)
        os.fsync(file.fileno())


def _text(value: float | int | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else repr(float(value))


def read_csv(path: Path) -> dict[str, list[float]]:
    """Columns of a metrics file; empty cells are NaN. A half-written last line is left out."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        lines = file.read().split("\n")[:-1]
    rows = list(csv.reader(lines))
    if not rows:
        return {}
    header, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    return {name: [float(row[i]) if row[i] else float("nan") for row in body] for i, name in enumerate(header)}
