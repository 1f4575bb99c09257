"""Metrics as TensorBoard scalars against frames."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from rnd.config import WriterOptions
from rnd.record.files import make_folder, open_regular
from rnd.record.metrics import Row, RunInfo

VERSION = "brain.Event:2"
"""First entry of every event file."""


class TensorBoardWriter:
    """Event files in the run folder, under tensorboard/."""

    def __init__(self, run: RunInfo, options: WriterOptions):
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = run.folder / "tensorboard"
        make_folder(folder, run.folder)
        self._clock = start_time(folder)
        self._file = open_regular(folder / f"events.out.tfevents.{self._clock:010.0f}.rnd", "xb")
        self._records = RecordWriter(self._file)
        self._add(file_version=VERSION)
        # TensorBoard drops what an earlier process wrote after the checkpoint.
        self._add(step=run.frames + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, row: Row, timing: Row) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        groups = ("train", row), ("speed", timing)
        values = [
            Summary.Value(tag=f"{group}/{name}", simple_value=value)
            for group, columns in groups
            for name, value in columns.items()
            if value is not None and name != "frames"
        ]
        self._add(step=int(row["frames"] or 0), summary=Summary(value=values))
        self._file.flush()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _add(self, **entry: object) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._clock = max(self._clock, datetime.now(UTC).timestamp())
        self._records.write(Event(wall_time=self._clock, **entry).SerializeToString())


def start_time(folder: Path) -> float:
    """Now, or later than all event files: TensorBoard reads them in the order of their names, which begin with the time
    in seconds, and would drop the rows of a run that is resumed within a second, or after the clock was set back."""
    names = (re.match(r"events\.out\.tfevents\.(\d{10})\b", path.name) for path in folder.iterdir())
    return max([datetime.now(UTC).timestamp(), *(float(name[1]) + 1 for name in names if name)])
