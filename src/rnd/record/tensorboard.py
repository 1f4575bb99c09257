"""Metrics as TensorBoard scalars against frames."""

from __future__ import annotations

import time
from typing import Any

from rnd.config import WriterOptions
from rnd.record.metrics import Row, RunInfo


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
