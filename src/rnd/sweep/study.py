"""The trials of a sweep: Optuna chooses the values of the next one, and which ones end early.

All trials are in Optuna's journal in the sweep's folder. Only the process that holds the folder's lock writes it.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from rnd.foundation.errors import UserError, install
from rnd.foundation.files import open_regular, read_errors
from rnd.sweep.space import Space

JOURNAL = "journal.log"
RANDOM_TRIALS = 8
"""Trials, the first one included, before the results of earlier ones choose the values (Optuna's TPE)."""
WHOLE_TRIALS = 4
"""Trials that are trained to the end before any is pruned."""
PRUNED_FROM = 30
"""Percent of its frames before which no trial is pruned: exploration may take a while to find anything."""
MIN_COMPARED = 4
"""Trials without which no importance is computed."""


def load_optuna() -> Any:
    """The optuna module, which prints nothing but errors."""
    try:
        import optuna
    except ImportError as error:
        raise UserError(f"rnd sweep needs Optuna: {install('sweep')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class HeldLock:
    """The lock of the journal: nothing to do, because the sweep holds its folder. Optuna's own, a file, would stay
    after SIGKILL."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Study:
    """The trials. `start` has the values of the first one."""

    def __init__(self, folder: Path, space: Space, start: dict[str, Any]):
        self.optuna, self.space, journal = load_optuna(), space, folder / JOURNAL
        with read_errors(journal, "the journal of a sweep"):
            drop_half_line(journal)
            backend = self.optuna.storages.journal.JournalFileBackend(str(journal), lock_obj=HeldLock())
            self.study = self.optuna.create_study(
                storage=self.optuna.storages.JournalStorage(backend),
                study_name=folder.name,
                direction="maximize",
                load_if_exists=True,
            )
        if not self.study.trials:
            self.study.enqueue_trial(start)

    @property
    def trials(self) -> list[Any]:
        """Those that have begun, as Optuna's frozen trials: also running, pruned and failed ones."""
        waiting = self.optuna.trial.TrialState.WAITING
        return [trial for trial in self.study.trials if trial.state != waiting]

    def frozen(self, trial: Any) -> Any:
        """What is stored of a trial."""
        return self.study.trials[trial.number]

    def unfinished(self) -> list[Any]:
        """The trials that ran when an earlier process ended."""
        found = self.study.get_trials(states=[self.optuna.trial.TrialState.RUNNING])
        return [self._with_values(trial.number, self.optuna.trial.Trial, trial._trial_id) for trial in found]

    def new(self) -> Any:
        return self._with_values(len(self.trials), lambda study: study.ask())

    def _with_values(self, number: int, make: Any, *arguments: Any) -> Any:
        """A trial with a value for every field. The draws depend on its number and the trials before it alone, so that
        a sweep that was stopped continues as if it had not been."""
        self.study.sampler = self.optuna.samplers.TPESampler(seed=number, n_startup_trials=RANDOM_TRIALS)
        trial = make(self.study, *arguments)
        for name, values in self.space.items():
            values.suggest(trial, name)  # those that it has already stay
        return trial

    def is_bad(self, trial: Any) -> bool:
        """Whether a trial is to be pruned: what was reported of it last is below the median of the trials that were
        trained to their end, at the same step. (Optuna's own pruners compare the best report instead, and never prune a
        trial that gets worse.)"""
        reports = self.frozen(trial).intermediate_values
        step = max(reports, default=0)
        others = [other.intermediate_values.get(step) for other in self.completed()]
        known = [value for value in others if value is not None]
        return step >= PRUNED_FROM and len(known) >= WHOLE_TRIALS and reports[step] < statistics.median(known)

    def complete(self, trial: Any, value: float) -> None:
        self.study.tell(trial, value)

    def prune(self, trial: Any) -> None:
        self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)

    def fail(self, trial: Any, problem: str) -> None:
        trial.set_user_attr("problem", problem)
        self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)

    def completed(self) -> list[Any]:
        """The trials that were trained to the end, best first; of equal ones the earlier first."""
        found = self.study.get_trials(states=[self.optuna.trial.TrialState.COMPLETE])
        return sorted(found, key=lambda trial: -trial.value)

    def importances(self) -> dict[str, float]:
        """Share of each field in what separates the best third of the trials from all (PED-ANOVA), the largest first.
        Pruned trials count with the value that they had. Empty where there are too few trials or no differences."""
        trials = [trial for trial in self.study.trials if trial.value is not None]
        if len(trials) < MIN_COMPARED or len({trial.value for trial in trials}) == 1:
            return {}
        every = self.optuna.create_study(direction="maximize")
        for trial in trials:
            made = self.optuna.trial.create_trial(
                params=trial.params, distributions=trial.distributions, value=trial.value
            )
            every.add_trial(made)
        evaluator = self.optuna.importance.PedAnovaImportanceEvaluator(target_quantile=1 / 3)
        return dict(self.optuna.importance.get_param_importances(every, evaluator=evaluator))


def drop_half_line(path: Path) -> None:
    """Remove what a process that died while it wrote left at the end of the journal: Optuna would refuse the file."""
    if path.exists():
        with open_regular(path, "r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
