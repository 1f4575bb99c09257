"""Metrics as TensorBoard scalars against frames, and the config as its hyperparameters."""

from __future__ import annotations

import time
from typing import Any

from rnd.config import Config, WriterOptions
from rnd.record.metrics import Row, RunInfo

ROLLOUT = ("episodes", "return_mean", "return_best", "length_mean", "success", "rooms", "places")
BONUS = ("bonus_raw", "bonus_max", "bonus_scaled", "bonus_scale", "return_int")
TIME = ("iteration", "updates")
GROUPS = {name: group for group, names in (("rollout", ROLLOUT), ("bonus", BONUS), ("time", TIME)) for name in names}
"""Column to the group of its tag; all others are of the update, under loss/."""
COMPARED = ("rollout/return_mean", "rollout/return_best", "rollout/success", "rollout/rooms")
"""Tags that the table of hyperparameters shows."""


class TensorBoardWriter:
    """Event files in the run folder, under tensorboard/."""

    def __init__(self, run: RunInfo, options: WriterOptions):
        """The event file must be the last by name.

        TensorBoard reads files in the order of their names, which consist of the time in seconds and the process. If a
        run is resumed within the same second, its new file may come before the old one, and its rows would be dropped:
        try again for a second. If the clock was set back, this does not wait for it.
        """
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        earlier = {*folder.glob("events.out.tfevents.*")}
        for left in range(12, -1, -1):
            # TensorBoard drops what an earlier process wrote after the checkpoint.
            self._writer: Any = SummaryWriter(str(folder), purge_step=run.frames + 1)
            own = {*folder.glob("events.out.tfevents.*")} - earlier
            if left == 0 or not earlier or not own or min(own) > max(earlier):
                break
            self._writer.close()
            for path in own:
                path.unlink()
            time.sleep(0.1)
        self._write_hyperparameters(run.config)

    def _write_hyperparameters(self, config: Config) -> None:
        """As `SummaryWriter.add_hparams`, but into this event file: that one makes a second run, in a subfolder."""
        from torch.utils.tensorboard.summary import hparams

        flat = config.flat()
        values = {name: flat[name] for role in ("experiment", "seed") for name in config.named(role)}
        plain = {name: v if isinstance(v, int | float | str) else str(v) for name, v in values.items()}
        experiment, start, self._end = hparams(plain, dict.fromkeys(COMPARED, 0))
        for summary in (experiment, start):
            self._writer.file_writer.add_summary(summary)

    def write(self, row: Row, timing: Row) -> None:
        tagged = {f"{GROUPS.get(name, 'loss')}/{name}": value for name, value in row.items() if name != "frames"}
        for tag, value in (tagged | {f"time/{name}": value for name, value in timing.items()}).items():
            if value is not None:
                self._writer.add_scalar(tag, value, row["frames"])

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.file_writer.add_summary(self._end)
        self._writer.close()
