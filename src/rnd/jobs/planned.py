"""A run that is to be trained: where its folder is, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rnd.config import Config
from rnd.foundation.errors import UserError
from rnd.report.runs import Run, differences, read_run

MAX_NAMED = 4
"""Differences that an error names."""


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
    extends: bool = False
    """More frames than those of the folder continue a finished run. Not for runs that are named after their frames."""

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
        """Finished: it has all the frames of its own config, and of the planned one if that `extends` it."""
        run = self.read()
        if run is None:
            return State.MISSING
        if run.config is None:
            return State.PARTIAL
        wanted = self.config if self.extends else run.config
        return State.FINISHED if run.last("iteration") >= wanted.iterations else State.PARTIAL

    def check_folder(self) -> None:
        """Refuse a folder that holds another experiment. More frames, another device or other writers are honoured."""
        run = self.read()
        if run is None or run.config is None:
            return
        there, here = run.config.flat(), self.config.flat()
        seed = ["seed"] if there["seed"] != here["seed"] else []
        names = [*seed, *(name for name in differences([run.config, self.config]) if name != "frames")]
        wrong = [f"{name} {there.get(name)} instead of {here.get(name)}" for name in names]
        if run.last("iteration") > self.config.iterations:
            wrong.append(f"{run.last('frames'):,.0f} frames done instead of {self.config.frames:,}")
        if wrong:
            more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
            raise UserError(
                f"{self.path} is a run with other flags: {', '.join(wrong[:MAX_NAMED])}{more}; "
                "choose another --name, or repeat its flags"
            )
