"""A sweep: trials are trained by a scheduler, one run per seed, and judged by their metrics as they appear."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from rnd.checkpoint.folder import RunFolder, check_name, describe_run
from rnd.config import Config
from rnd.foundation.console import say
from rnd.foundation.errors import RunError, UserError
from rnd.foundation.files import read_errors, read_json, write_json
from rnd.foundation.text import significant
from rnd.jobs.planned import PlannedRun, State, differing, refuse_other_flags
from rnd.jobs.scheduler import Outcome, Scheduler, frames_done
from rnd.report.runs import differences
from rnd.sweep.finals import train_finals
from rnd.sweep.plan import Plan, group_of
from rnd.sweep.results import described, show_results, write_tables
from rnd.sweep.score import metrics_of, score
from rnd.sweep.study import Study, load_optuna

LOOKS = 10
"""Times that the first seed of a trial is judged, evenly spaced over its frames."""


def search(plan: Plan, scheduler: Scheduler, console: Console) -> None:
    """Train the trials that are missing, and write what they show. A repeated call continues."""
    load_optuna()  # before anything is written
    check_name(plan.folder.name)
    folder = plan.folder
    if (folder / "config.json").exists():
        raise UserError(f"{folder} is the folder of a run; choose another --name")
    folder.mkdir(parents=True, exist_ok=True)
    with RunFolder(folder).lock():
        check_folder(plan)
        study = Study(folder, plan.space, plan.start_values)
        sweep = Sweep(plan, study, console)
        over = ", ".join(f"{name} {values}" for name, values in plan.space.items())
        say(console, f"{folder}: {plan.trials} trials, {sweep.finished} finished; over {over}")
        for outcome in scheduler.run(sweep):
            sweep.end(outcome)
        train_finals(plan, study, scheduler, console)
        show_results(plan, study, console)


def check_folder(plan: Plan) -> None:
    """Describe a new sweep in its folder; refuse the folder of another sweep."""
    path = plan.folder / "sweep.json"
    if not path.exists():
        write_json(path, {**plan.described(), "config": plan.start.to_dict(), "run": describe_run()})
        return
    with read_errors(path, "a sweep"):
        found = read_json(path)
        there, before = Config.from_dict(found["config"]), {name: found[name] for name in plan.described()}
    wrong = differing(there, plan.start, differences([there, plan.start]))
    wrong += [
        f"{name} {before[name]} instead of {now}" for name, now in plan.described().items() if before[name] != now
    ]
    refuse_other_flags(plan.folder, "sweep", wrong)


@dataclass
class TrialRuns:
    """A trial that is trained now."""

    trial: Any
    runs: list[PlannedRun] = field(default_factory=list)
    looks: int = 0
    """How often its first seed has been judged."""
    scores: dict[int, float] = field(default_factory=dict)
    """Seed to score, of the runs that are finished."""
    begun: set[int] = field(default_factory=set)
    """Seeds that were given to the scheduler, or were finished before."""


class Sweep:
    """The runs of all trials that are not finished: a queue for a scheduler. Outcomes are given to `end`."""

    def __init__(self, plan: Plan, study: Study, console: Console):
        self.plan, self.study, self.console = plan, study, console
        self._current: dict[str, TrialRuns] = {}
        """By the group of their runs."""
        self.finished = sum(trial.state.is_finished() for trial in study.trials)
        """Trials that earlier calls have finished."""
        self.count = max(0, plan.trials - self.finished) * len(plan.seeds)
        self.frames = self.count * PlannedRun("", plan.start).frames

    def __iter__(self) -> Iterator[PlannedRun]:
        for trial in self._unfinished_then_new():
            group = group_of(trial.number)
            current = self._current[group] = TrialRuns(trial)
            self._take_up(group, current)
            for planned in current.runs:
                if group not in self._current:  # pruned, or failed
                    break
                current.begun.add(planned.config.seed)
                if planned.state() is State.FINISHED:
                    self.count -= 1
                    self.frames -= planned.frames
                    self.end(Outcome(planned))
                    continue
                yield planned

    def _unfinished_then_new(self) -> Iterator[Any]:
        yield from self.study.unfinished()
        while len(self.study.trials) < self.plan.trials:
            yield self.study.new()

    def _take_up(self, group: str, current: TrialRuns) -> None:
        """Plan the runs of a trial, and continue with what an earlier process has reported of it."""
        try:
            current.runs = self.plan.runs(current.trial.number, current.trial.params, self.plan.seeds)
        except UserError as error:  # values that do not go together
            self.count -= len(self.plan.seeds)
            self.frames -= len(self.plan.seeds) * PlannedRun("", self.plan.start).frames
            self._fail(group, str(error))
            return
        reported = self.study.frozen(current.trial).intermediate_values
        current.looks = max(reported, default=0) * LOOKS // 100
        if self.study.is_bad(current.trial):  # that process ended before it did so
            self._prune(group)

    def stops(self, planned: PlannedRun) -> bool:
        """Whether the trial of a run is over, because it is pruned or another seed of it has failed."""
        current = self._current.get(planned.group)
        if current is not None and planned.config.seed == self.plan.seeds[0]:
            self._judge(planned, current)
        return planned.group not in self._current

    def _judge(self, planned: PlannedRun, current: TrialRuns) -> None:
        """Report the score of the first seed at every tenth of its frames, and prune the trial where it is bad."""
        reached = frames_done(planned) * LOOKS // planned.frames
        columns = metrics_of(planned) if reached > current.looks else {}
        while current.looks < reached:
            current.looks += 1
            value = score(columns, self.plan.measure, planned.frames * current.looks / LOOKS)
            if not math.isnan(value):
                current.trial.report(value, step=100 * current.looks // LOOKS)
                if self.study.is_bad(current.trial):
                    self._prune(planned.group)
                    return

    def end(self, outcome: Outcome) -> None:
        """Take the outcome of a run. The trial ends with the last of its seeds."""
        planned = outcome.planned
        if self.stops(planned):  # with the rows since the last look
            return
        value = score(metrics_of(planned), self.plan.measure, planned.frames)
        if outcome.problem or math.isnan(value):
            missing = f"no {self.plan.measure} after {planned.frames:,} frames; try more --frames or another --measure"
            self._fail(planned.group, outcome.problem or missing)
            return
        current = self._current[planned.group]
        current.scores[planned.config.seed] = value
        if len(current.scores) == len(self.plan.seeds):
            del self._current[planned.group]
            current.trial.set_user_attr("scores", [current.scores[seed] for seed in self.plan.seeds])
            self.study.complete(current.trial, float(np.mean([*current.scores.values()])))
            self._say(current.trial)

    def _prune(self, group: str) -> None:
        trial = self._drop(group)
        self.study.prune(trial)
        self._say(trial)

    def _fail(self, group: str, problem: str) -> None:
        trial = self._drop(group)
        if trial.number == 0:  # it stays unfinished: a repeated command tries it again
            raise RunError(f"the first trial, which has the values that the search starts from, failed: {problem}")
        self.study.fail(trial, problem)
        self._say(trial)

    def _drop(self, group: str) -> Any:
        """End a trial early: what is left of it is no work any more."""
        current = self._current.pop(group)
        for planned in current.runs:
            if planned.config.seed not in current.scores:
                self.count -= planned.config.seed not in current.begun
                self.frames -= planned.frames - frames_done(planned)
        return current.trial

    def _say(self, trial: Any) -> None:
        best = self.study.completed()[:1]
        said = f"; best: trial {best[0].number}, {significant(best[0].value)}" if best else ""
        say(self.console, f"trial {trial.number}: {described(self.study.frozen(trial))}{said}")
        write_tables(self.plan, self.study)
