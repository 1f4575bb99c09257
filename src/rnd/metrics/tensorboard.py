"""Metrics as TensorBoard scalars against frames, and the config as its hyperparameters."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from rnd.config import Config, WriterOptions
from rnd.foundation.files import make_folder, open_regular
from rnd.metrics.metrics import Row, RunInfo

VERSION = "brain.Event:2"
"""First entry of every event file."""
ROLLOUT = ("episodes", "return_mean", "return_best", "length_mean", "success", "rooms", "places", "places_mean")
BONUS = ("bonus_raw", "bonus_max", "bonus_scaled", "bonus_scale", "return_int", "bonus_spread", "bonus_share")
TIME = ("iteration", "updates")
GROUPS = {name: group for group, names in (("rollout", ROLLOUT), ("bonus", BONUS), ("time", TIME)) for name in names}
"""Column to the group of its tag; all others are of the update, under loss/."""
COMPARED = ("rollout/return_mean", "rollout/return_best", "rollout/success", "rollout/rooms")
"""Tags that the table of hyperparameters shows."""


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
        self._add_hyperparameters(run.config)

    def write(self, row: Row, timing: Row) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        tagged = {f"{GROUPS.get(name, 'loss')}/{name}": value for name, value in row.items() if name != "frames"}
        tagged |= {f"time/{name}": value for name, value in timing.items()}
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in tagged.items() if value is not None]
        self._add(step=int(row["frames"] or 0), summary=Summary(value=values))
        self._file.flush()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._add(summary=self._end)
        self._file.close()

    def _add_hyperparameters(self, config: Config) -> None:
        """As `SummaryWriter.add_hparams`, but into this event file: that one makes a second run, in a subfolder."""
        from torch.utils.tensorboard.summary import hparams

        flat = config.flat()
        values = {name: flat[name] for role in ("experiment", "seed") for name in config.named(role)}
        plain = {name: v if isinstance(v, int | float | str) else str(v) for name, v in values.items()}
        experiment, start, self._end = hparams(plain, dict.fromkeys(COMPARED, 0))
        for summary in (experiment, start):
            self._add(summary=summary)

    def _add(self, **entry: object) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._clock = max(self._clock, datetime.now(UTC).timestamp())
        self._records.write(Event(wall_time=self._clock, **entry).SerializeToString())


def start_time(folder: Path) -> float:
    """Now, or later than all event files: TensorBoard reads them in the order of their names, which begin with the time
    in seconds, and would drop the rows of a run that is resumed within a second, or after the clock was set back."""
    names = (re.match(r"events\.out\.tfevents\.(\d{10})\b", path.name) for path in folder.iterdir())
    return max([datetime.now(UTC).timestamp(), *(float(name[1]) + 1 for name in names if name)])
