"""When checkpoints are written: by time, by iterations, on a signal, at the end, and when the run fails."""

from __future__ import annotations

import time
from pathlib import Path

from rnd.checkpoint import checkpoint
from rnd.checkpoint.folder import RunFolder
from rnd.checkpoint.metadata import Saveable, describe
from rnd.foundation.errors import RunError
from rnd.metrics.metrics import Row, Writers


class NotSavedError(RunError):
    """A checkpoint could not be written."""


class Checkpointer:
    """Writes the checkpoints of a training run."""

    def __init__(self, trainer: Saveable, folder: RunFolder, writers: Writers, saved: int | None):
        self.trainer, self.folder, self.writers = trainer, folder, writers
        self.options = trainer.config.checkpoint
        self.saved = saved
        """Iteration of the last checkpoint."""
        self._clock = time.monotonic()

    @property
    def due(self) -> bool:
        minutes, every = self.options.every_minutes, self.options.every_iterations
        by_clock = minutes > 0 and time.monotonic() - self._clock >= 60 * minutes
        return by_clock or (every > 0 and self.trainer.iteration % every == 0)

    def save(self, row: Row) -> None:
        """Write a checkpoint now, unless this iteration has one."""
        if self.saved == self.trainer.iteration:
            return
        self._clock = time.monotonic()
        self._write(f"{self.trainer.iteration:09d}", row)
        self.saved = self.trainer.iteration
        if self.trainer.ranks.is_rank0:
            checkpoint.prune(self.folder.checkpoints, self.options.keep_last)

    def save_failed(self, row: Row) -> Path:
        """Keep the state of a failed run, beside the checkpoints that it can be resumed from."""
        return self._write(f"{checkpoint.FAILED}{self.trainer.iteration:09d}", row)

    def _write(self, name: str, row: Row) -> Path:
        """Rank 0 writes the states of all ranks.

        Raises NotSavedError, on all of them, when that fails; earlier checkpoints stay.
        """
        trainer, root, state = self.trainer, self.folder.checkpoints, self.trainer.state_dict()

        def write() -> Path:
            try:
                self.writers.flush()
                path = checkpoint.write(root, name, describe(trainer, row, self.folder.path), state)
                self.folder.write_json("rooms.json", state["episodes"]["rooms"])
                return path
            except OSError as error:
                before = checkpoint.found(root)
                kept = f"the one before it is kept ({before[-1]})" if before else "there is none before it"
                raise NotSavedError(
                    f"the checkpoint of iteration {trainer.iteration} cannot be written ({error.strerror or error}); "
                    f"{kept}; make room on the disk"
                ) from error

        return trainer.ranks.on_rank0(write)
