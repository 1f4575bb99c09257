"""Rows 5 and 6: the disk is full."""

from __future__ import annotations

import warnings
from unittest import mock

import pytest
from fault_helpers import fingerprint, iterations, quiet, resume, small, start

from rnd import run
from rnd.checkpoint import checkpoint
from rnd.checkpoint.checkpointer import NotSavedError
from rnd.config import WriterOptions
from rnd.foundation.errors import RunError
from rnd.metrics.metrics import CsvWriter, RunInfo, Writers, read_csv
from rnd.metrics.tensorboard import TensorBoardWriter

BIG_NETWORK = {"width": 96}
"""Makes a checkpoint of about 300 kB: on a disk of 1 MB there is room for the first ones only."""


def test_disk_full_while_saving(disk, tmp_path):
    """The error is told, the run goes on, the checkpoint before is whole; with room again, the run ends as planned."""
    config = small(iterations=6, checkpoint={"every_iterations": 1, "keep_last": 100}, **BIG_NETWORK)
    with pytest.raises(RunError, match=r"cannot be written \(No space left on device\); the one before it is kept"):
        start(config, disk.path)
    path = disk.path / "run"
    saved, problems = checkpoint.newest(path / "checkpoints")
    assert not problems and 0 < saved.metadata["iteration"] < 6
    assert not list((path / "checkpoints").glob("writing-*"))
    disk.resize(8192)
    resume(path)
    whole = start(config, tmp_path)
    assert iterations(path) == [1, 2, 3, 4, 5, 6]
    assert fingerprint(path) == fingerprint(whole)


def test_only_the_disk_is_excused():
    """A checkpoint that fails because a rollout under way failed ends the run."""
    checkpointer, console = mock.Mock(), quiet()
    checkpointer.save.side_effect = NotSavedError("no room for [/red] and [v1]/run")
    run.save_or_warn(checkpointer, {}, console)
    assert "error: no room for [/red] and [v1]/run; training continues" in console.file.getvalue()
    checkpointer.save.side_effect = RunError("environment 3 raised")
    with pytest.raises(RunError, match="environment 3 raised"):
        run.save_or_warn(checkpointer, {}, console)


def test_training_goes_on_when_a_checkpoint_does_not_fit(disk):
    changes = {"checkpoint": {"every_iterations": 1, "keep_last": 100}, **BIG_NETWORK}
    config = small(iterations=6, out=str(disk.path), name="run", **changes)
    console = quiet()
    with pytest.raises(RunError):
        run.start(config, console)
    said = console.file.getvalue()
    assert "error: the checkpoint of iteration" in said and "training continues" in said
    assert iterations(disk.path / "run") == [1, 2, 3, 4, 5, 6]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_disk_full_while_logging(disk):
    """A warning a writer, once; no exception and no hanging thread; with room again, rows are written again."""
    writers = Writers([CsvWriter(disk.path), TensorBoardWriter(RunInfo(disk.path, small(), 0), WriterOptions())])
    row = {"iteration": 0, "frames": 0, "return_mean": 1.0}
    writers.write(row, {"seconds": 1.0})
    writers.flush()
    ballast = disk.path / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(bytes(2**21))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(1, 2000):
            writers.write(row | {"iteration": i, "frames": i}, {"seconds": 1.0})
        writers.flush()
    texts = [str(warning.message) for warning in caught if issubclass(warning.category, RuntimeWarning)]
    assert sum("CsvWriter cannot write" in text for text in texts) == 1
    assert sum("TensorBoardWriter cannot write" in text for text in texts) == 1
    ballast.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writers.write(row | {"iteration": 2000, "frames": 2000}, {"seconds": 1.0})
        writers.close()
    numbers = read_csv(disk.path / "metrics.csv")["iteration"].tolist()
    assert numbers[0] == 0 and numbers[-1] == 2000 and numbers == sorted(set(numbers))
