"""One run per seed (`rnd train --seeds 1-5`): which runs these are, whether they fit the flags, and how they ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

from rnd.checkpoint.folder import check_name
from rnd.config import Config
from rnd.foundation.console import say
from rnd.foundation.errors import RunError
from rnd.foundation.statistics import mean_interval
from rnd.foundation.text import count, significant
from rnd.jobs.local import LocalJobs
from rnd.jobs.planned import PlannedRun, State
from rnd.jobs.scheduler import RunList
from rnd.report.runs import Run

Format = Callable[[float], str]

MEASURES: tuple[tuple[str, str, Format], ...] = (
    ("return_mean", "return (last 100)", significant),
    ("success", "success (last 100)", "{:.0%}".format),
)
"""Columns of the table: metric, title, and how a value becomes text."""


def train_seeds(config: Config, seeds: list[int], jobs: int, console: Console) -> None:
    """Train one run per seed, in processes of their own. Those that were stopped continue; the same with more frames
    continues finished ones."""
    name = config.name or replace(config, seed=0).run_name.removesuffix("-s0")
    runs = [PlannedRun(name, replace(config, seed=seed, name=f"{name}-s{seed}"), extends=True) for seed in seeds]
    for planned in runs:
        check_name(planned.config.run_name)
        planned.check_folder()
    todo = [planned for planned in runs if planned.state() is not State.FINISHED]
    failed = 0
    for outcome in LocalJobs(jobs, console).run(RunList(todo)) if todo else ():
        failed += outcome.problem is not None
        say(console, f"{outcome.planned.path}: {outcome.problem or 'finished'}")
    console.print(table([(planned, planned.read()) for planned in runs]))
    say(console, f"to compare them: rnd report {' '.join(str(planned.path) for planned in runs)}")
    if failed:
        raise RunError(f"{failed} of {len(todo)} runs did not finish; repeat the same command to continue")


def table(runs: list[tuple[PlannedRun, Run | None]]) -> Table:
    """One row per seed, and the mean of the finished ones with its 95% bootstrap interval."""
    found = [(planned, run) for planned, run in runs if run is not None]
    measures = [m for m in MEASURES if any(np.isfinite(run.last(m[0])) for _, run in found)]
    made = Table(box=None, pad_edge=False)
    for title in ("seed", "frames", *(title for _, title, _ in measures)):
        made.add_column(title, justify="right")
    for planned, run in found:
        done = count(max(0.0, np.nan_to_num(run.last("frames"))))
        finished = planned.state() is State.FINISHED
        values = [form(run.last(name)) if np.isfinite(run.last(name)) else "" for name, _, form in measures]
        made.add_row(str(planned.config.seed), done if finished else f"{done} of {count(planned.frames)}", *values)
    ended = [run for planned, run in found if planned.state() is State.FINISHED]
    if len(ended) > 1 and measures:
        made.add_row(
            "mean", "", *(mean_text(np.array([run.last(n) for run in ended]), form) for n, _, form in measures)
        )
    return made


def mean_text(values_R: np.ndarray, form: Format) -> str:
    """Mean and 95% interval of the known values, as text."""
    known = values_R[np.isfinite(values_R)]
    if len(known) < 2:
        return ""
    low, high = mean_interval(known)
    return f"{form(float(known.mean()))} (95%: {form(low)} to {form(high)})"
