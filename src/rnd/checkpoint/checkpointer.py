"""When checkpoints are written: by time, by iterations, on a signal, at the end, and when the run fails."""

from __future__ import annotations

import time
from pathlib import Path

from rnd.checkpoint import checkpoint
from rnd.checkpoint.folder import RunFolder
from rnd.checkpoint.metadata import Saveable, describe
from rnd.foundation.errors import RunError
from rnd.metrics.metrics import Row, Writers

TENTHS = 10
"""Parts of a run after each of which there is a checkpoint, so that `--best` has several to choose from in a run that
is shorter than the interval."""
LEAST_SECONDS, MAX_SHARE = 10.0, 0.02
"""Those come no sooner after another, and writing them takes no larger share of the time."""


class NotSavedError(RunError):
    """A checkpoint could not be written."""


class Checkpointer:
    """Writes the checkpoints of a training run."""

    def __init__(self, trainer: Saveable, folder: RunFolder, writers: Writers, saved: int | None):
        self.trainer, self.folder, self.writers = trainer, folder, writers
        self.options = trainer.config.checkpoint
        self.saved = saved
        """Iteration of the last checkpoint."""
        self._clock, self._tried = time.monotonic(), trainer.iteration
        """When a checkpoint was last begun: time and iteration. One that does not fit on the disk counts too."""
        self._took = 0.0
        """Seconds of the last checkpoint."""

    @property
    def due(self) -> bool:
        minutes, every = self.options.every_minutes, self.options.every_iterations
        waited = time.monotonic() - self._clock
        by_clock = minutes > 0 and (waited >= 60 * minutes or self._tenth(waited))
        return by_clock or (every > 0 and self.trainer.iteration % every == 0)

    def _tenth(self, waited: float) -> bool:
        """Whether a tenth of the run has ended since a checkpoint was begun, `waited` seconds ago."""
        total = self.trainer.config.iterations
        new = TENTHS * self.trainer.iteration // total > TENTHS * self._tried // total
        return new and waited >= max(LEAST_SECONDS, self._took / MAX_SHARE)

    def save(self, row: Row) -> None:
        """Write a checkpoint now, unless this iteration has one."""
        if self.saved == self.trainer.iteration:
            return
        self._clock, self._tried = time.monotonic(), self.trainer.iteration
        self._write(f"{self.trainer.iteration:09d}", row)
        self._took = time.monotonic() - self._clock
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
