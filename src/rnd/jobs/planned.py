"""A run that is to be trained: where its folder is, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
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
        seed = ["seed"] if run.config.seed != self.config.seed else []
        wrong = differing(run.config, self.config, [*seed, *differences([run.config, self.config])], ignored="frames")
        if run.last("iteration") > self.config.iterations:
            wrong.append(f"{run.last('frames'):,.0f} frames done instead of {self.config.frames:,}")
        refuse_other_flags(self.path, "run", wrong)


def differing(there: Config, here: Config, names: Sequence[str], ignored: str = "") -> list[str]:
    """One text per field, with its values in two configs."""
    before, now = there.flat(), here.flat()
    return [f"{name} {before.get(name)} instead of {now.get(name)}" for name in names if name != ignored]


def refuse_other_flags(path: Path, what: str, wrong: Sequence[str]) -> None:
    """Refuse to continue what is in a folder where anything is `wrong`."""
    if wrong:
        more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        raise UserError(
            f"{path} is a {what} with other flags: {', '.join(wrong[:MAX_NAMED])}{more}; "
            "choose another --name, or repeat its flags"
        )
