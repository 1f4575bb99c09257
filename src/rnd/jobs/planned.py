"""A run that is to be trained: where its folder is, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rnd.config import Config
from rnd.report.runs import Run, read_run


class State(StrEnum):
    """How far a planned run is."""

    MISSING = "to run"
    PARTIAL = "to resume"
    FINISHED = "finished"


@dataclass(frozen=True)
class PlannedRun:
    """One seed of a group of runs."""

    group: str
    """What the seeds have in common: the name of an arm."""
    config: Config
    """Complete: `out` and `name` give the folder."""

    @property
    def path(self) -> Path:
        return Path(self.config.out) / self.config.run_name

    @property
    def label(self) -> str:
        return f"{self.group}, seed {self.config.seed}"

    @property
    def frames(self) -> int:
        return self.config.iterations * self.config.frames_per_rollout

    def on(self, device: str) -> PlannedRun:
        """The same run on another device."""
        return replace(self, config=replace(self.config, device=device))

    def read(self) -> Run | None:
        """The contents of the run folder; None before it exists."""
        return read_run(self.path) if self.path.is_dir() else None

    def state(self) -> State:
        run = self.read()
        if run is None:
            return State.MISSING
        return State.FINISHED if run.finished else State.PARTIAL
