"""What a sweep is: the config that it starts from, the fields that it searches, and the runs of a trial."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rnd.config import Config
from rnd.jobs.planned import PlannedRun
from rnd.sweep.score import Measure
from rnd.sweep.space import Space, start_value, with_values


@dataclass(frozen=True)
class Plan:
    """What a sweep is."""

    start: Config
    """The config of the first trial. `out` and `name` give the folder."""
    space: Space
    seeds: tuple[int, ...]
    """The seeds of every trial. The first one decides whether the others are trained."""
    measure: Measure
    trials: int
    finals: int = 0
    """More seeds, with which the best trials are compared with the first one."""

    @property
    def folder(self) -> Path:
        default = replace(self.start, seed=0).run_name.removesuffix("-s0")
        return Path(self.start.out) / (self.start.name or f"sweep-{default}")

    @property
    def start_values(self) -> dict[str, Any]:
        return {name: start_value(self.start, name) for name in self.space}

    def config(self, values: dict[str, Any]) -> Config:
        """The config of a trial, as one would train with it: under another name."""
        config = replace(with_values(self.start, values), name=None)
        config.validate()
        return config

    @property
    def final_seeds(self) -> tuple[int, ...]:
        """Seeds that the search does not use."""
        return tuple(range(max(self.seeds) + 1, max(self.seeds) + 1 + self.finals))

    def runs(self, number: int, values: dict[str, Any], seeds: tuple[int, ...]) -> list[PlannedRun]:
        """The runs of a trial, one per seed."""
        out, config = str(self.folder / "runs"), self.config(values)
        return [
            PlannedRun(group_of(number), replace(config, out=out, seed=seed, name=f"trial-{number:03d}-s{seed}"))
            for seed in seeds
        ]

    def described(self) -> dict[str, Any]:
        """What must be the same when the sweep continues, as plain data."""
        over = {name: str(values) for name, values in self.space.items()}
        return {"over": over, "seeds": list(self.seeds), "measure": self.measure}


def group_of(number: int) -> str:
    """The name that the runs of a trial share."""
    return f"trial {number}"
