"""The finals: the best trials and the first one, compared by seeds that had no part in the search.

The best of many trials is in part the luckiest. The finals have no file of their own: their scores are in their runs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from rich.console import Console

from rnd.foundation.console import say
from rnd.jobs.planned import PlannedRun, State
from rnd.jobs.scheduler import RunList, Scheduler
from rnd.sweep.plan import Plan
from rnd.sweep.score import metrics_of, score
from rnd.sweep.study import Study

FINALISTS = 3
"""Trials beside the first one."""


def finalists(study: Study) -> list[Any]:
    """The best trials, best first, and the first one, whose values are those that the search began with."""
    found = study.completed()
    best = [trial for trial in found if trial.number > 0][:FINALISTS]
    return [trial for trial in found if trial in best or trial.number == 0]


def train_finals(plan: Plan, study: Study, scheduler: Scheduler, console: Console) -> None:
    """Train what the finals lack. A repeated call continues."""
    trials = finalists(study)
    runs = [planned for trial in trials for planned in final_runs(plan, trial)] if len(trials) > 1 else []
    todo = [planned for planned in runs if planned.state() is not State.FINISHED]
    if todo:
        numbers, seeds = (", ".join(map(str, each)) for each in ([t.number for t in trials], plan.final_seeds))
        say(console, f"finals of the trials {numbers}, with the seeds {seeds}: {len(todo)} runs")
        for outcome in scheduler.run(RunList(todo)):
            if outcome.problem:
                say(console, f"{outcome.planned.label}: not finished, {outcome.problem}")


def final_runs(plan: Plan, trial: Any) -> list[PlannedRun]:
    return plan.runs(trial.number, trial.params, plan.final_seeds)


def final_scores(plan: Plan, study: Study) -> dict[int, list[float]]:
    """Number of a finalist to its scores. Those whose runs are not all finished are left out."""
    found = {}
    for trial in finalists(study):
        runs = final_runs(plan, trial)
        scores = [score(metrics_of(run), plan.measure, run.frames) for run in runs if run.state() is State.FINISHED]
        if scores and len(scores) == len(runs) and not any(map(math.isnan, scores)):
            found[trial.number] = scores
    return found


def ranked(study: Study, finals: dict[int, list[float]]) -> list[Any]:
    """The trials that were trained to the end: finalists first, by their finals, then the others by the search."""
    means = {number: float(np.mean(scores)) for number, scores in finals.items()}
    return sorted(study.completed(), key=lambda trial: -means.get(trial.number, -math.inf))
