"""When a checkpoint is due: by time, after every tenth of a run, by iterations."""

from types import SimpleNamespace
from unittest import mock

import pytest

from rnd.checkpoint import checkpointer
from rnd.checkpoint.checkpointer import Checkpointer, NotSavedError
from rnd.config import CheckpointConfig


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(checkpointer, "time", clock)
    return clock


def saved_at(clock, iterations, seconds, *, first=0, took=0.0, fails=False, **options):
    """The iterations at which a run writes checkpoints, one of `seconds` each; a checkpoint takes `took`."""
    config = SimpleNamespace(checkpoint=CheckpointConfig(**options), iterations=iterations)
    trainer = SimpleNamespace(config=config, iteration=first, ranks=SimpleNamespace(is_rank0=False))
    writer = Checkpointer(trainer, mock.Mock(), mock.Mock(), first)
    found = []

    def write(*_):
        found.append(trainer.iteration)
        clock.now += took
        if fails:
            raise NotSavedError("no room")

    writer._write = write
    for trainer.iteration in range(first + 1, iterations + 1):
        clock.now += seconds
        if writer.due:
            try:
                writer.save({})
            except NotSavedError:
                assert fails
    return found


TENTHS = [*range(10, 101, 10)]


@pytest.mark.parametrize(
    ("seconds", "options", "expected"),
    [
        (1, {}, TENTHS),
        (0.5, {}, [20, 40, 60, 80, 100]),  # 10 seconds at least
        (0.01, {}, []),
        (1, {"took": 0.1}, TENTHS),
        (1, {"took": 0.4}, [10, 30, 50, 70, 90]),  # 20 seconds at least: 2% of the time
        (1, {"first": 35}, [45, 55, 65, 75, 85, 95]),  # resumed; 40 comes too soon
        (1, {"fails": True}, TENTHS),  # a full disk is not tried at every iteration
        (1, {"every_minutes": 0.0}, []),
        (1, {"every_minutes": 0.0, "every_iterations": 40}, [40, 80]),
        (1, {"every_iterations": 40}, sorted({*TENTHS, 40, 80})),
        (60, {"every_minutes": 7.0}, sorted({*TENTHS, *range(7, 100, 10)})),  # counted from the last one
    ],
)
def test_when_it_is_due(seconds, options, expected, clock):
    assert saved_at(clock, 100, seconds, **options) == expected


def test_a_run_of_fewer_iterations_than_tenths(clock):
    assert saved_at(clock, 3, 20.0) == [1, 2, 3]
