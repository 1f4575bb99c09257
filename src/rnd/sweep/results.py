"""What a sweep has shown: a table of its trials, the best config, and an image of what mattered."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rnd.foundation.console import say
from rnd.foundation.errors import RunError
from rnd.foundation.files import write_atomically, write_json
from rnd.foundation.tables import csv_text
from rnd.foundation.text import significant
from rnd.report.figure import COLOURS, new_figure, save
from rnd.sweep.finals import final_scores, ranked
from rnd.sweep.plan import Plan
from rnd.sweep.score import TITLES
from rnd.sweep.space import Between, Values
from rnd.sweep.study import Study

SHOWN = 10
"""Trials in the printed table."""
COLUMNS = 3
"""Panels beside each other."""


def described(trial: Any) -> str:
    """How a trial ended, in a few words."""
    if trial.state.name == "COMPLETE":
        scores = ", ".join(map(significant, trial.user_attrs["scores"]))
        return f"score {significant(trial.value)} (seeds: {scores})"
    if trial.state.name == "PRUNED":
        return f"pruned after {max(trial.intermediate_values)}% of its frames, with {significant(trial.value)}"
    return f"failed: {trial.user_attrs.get('problem')}"


def value_text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def write_tables(plan: Plan, study: Study) -> None:
    """`sweep.csv` with all trials, and `best.json`, the config of the best one."""
    finals = final_scores(plan, study)
    write_atomically(plan.folder / "sweep.csv", trials_csv(plan, study, finals))
    if best := ranked(study, finals)[:1]:
        write_json(plan.folder / "best.json", plan.config(best[0].params).to_dict())


def trials_csv(plan: Plan, study: Study, finals: dict[int, list[float]]) -> str:
    """One row per trial that has ended."""
    seeds = [f"seed_{seed}" for seed in (*plan.seeds, *plan.final_seeds)]
    rows = []
    for trial in study.trials:
        if trial.state.is_finished():
            scores = trial.user_attrs.get("scores", [None] * len(plan.seeds))
            scores = [*scores, *finals.get(trial.number, [None] * plan.finals)]
            values = [trial.params.get(name) for name in plan.space]
            rows.append((trial.number, trial.state.name.lower(), trial.value, *scores, *values))
    return csv_text(("trial", "state", "score", *seeds, *plan.space), rows)


def show_results(plan: Plan, study: Study, console: Console) -> None:
    """Print the best trials and what mattered, and write the image."""
    write_tables(plan, study)
    finals, importances = final_scores(plan, study), study.importances()
    found = ranked(study, finals)
    if not found:
        raise RunError(f"none of {len(study.trials)} trials was trained to its end; the last line of each says why")
    console.print(best_table(plan, found, finals))
    if importances:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in importances.items())
        say(console, f"what mattered: {shares}")
    figure = draw(plan, study, importances, found[0].number)
    save(figure, plan.folder / "sweep", trials_csv(plan, study, finals))
    best = plan.folder / "best.json"
    where = f"trial {found[0].number}" if found[0].number else "the first trial: nothing better was found"
    say(console, f"  trials       {plan.folder / 'sweep.csv'}")
    say(console, f"  image        {plan.folder / 'sweep.png'}")
    say(console, f"  best config  {best}, of {where}")
    say(console, f"to train with it: rnd train --config {best}")


def best_table(plan: Plan, found: list[Any], finals: dict[int, list[float]]) -> Table:
    """The best trials, and the first one."""
    made = Table(box=None, pad_edge=False)
    for title in ("trial", "score", *(["finals"] if finals else [])):
        made.add_column(title, justify="right", no_wrap=True)
    made.add_column("values")
    shown = found[:SHOWN] + [trial for trial in found[SHOWN:] if trial.number == 0]
    for trial in shown:
        name = f"{trial.number} (start)" if trial.number == 0 else str(trial.number)
        last = [significant(float(np.mean(finals[trial.number]))) if trial.number in finals else ""] if finals else []
        values = ", ".join(f"{field} {value_text(trial.params[field])}" for field in plan.space)
        made.add_row(name, significant(trial.value), *last, Text(values))  # no markup: some may be names
    return made


def draw(plan: Plan, study: Study, importances: dict[str, float], best: int) -> Any:
    """A panel with the importances, and one per field with the scores of all trials over its values."""
    panels = len(plan.space) + bool(importances)
    columns = min(COLUMNS, panels)
    rows = -(-panels // columns)
    figure = new_figure(4.2 * columns, 3.1 * rows + 0.8)
    axes = list(figure.subplots(rows, columns, squeeze=False).reshape(-1))
    for unused in axes[panels:]:
        unused.set_visible(False)
    if importances:
        draw_importances(axes.pop(0), importances)
    trials = [trial for trial in study.trials if trial.value is not None]
    for ax, (name, values) in zip(axes, plan.space.items(), strict=False):
        draw_field(ax, name, values, trials, best)
        ax.set_ylabel(TITLES.get(plan.measure, plan.measure), fontsize=8)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=4, fontsize=8, frameon=False)
    title = f"{plan.start.env.id}: {len(study.trials)} trials"
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    figure.supxlabel(textwrap.fill(note(plan), 50 * columns), fontsize=7.5, color="#555555")
    return figure


def note(plan: Plan) -> str:
    seeds = f"{len(plan.seeds)} seeds" if len(plan.seeds) > 1 else "one seed"
    return (
        f"score: mean {TITLES.get(plan.measure, plan.measure)} over the second half of {plan.start.frames:,} frames, "
        f"mean of {seeds}; of a pruned trial, the first seed as far as it was trained. "
        "importance: share in what separates the best third of the trials from all (PED-ANOVA); with few trials a hint"
    )


def draw_importances(ax: Any, importances: dict[str, float]) -> None:
    names = list(importances)[::-1]
    ax.barh(names, [importances[name] for name in names], color=COLOURS[0])
    ax.set_title("importance", fontsize=10)
    finish(ax)


def draw_field(ax: Any, name: str, values: Values, trials: list[Any], best: int) -> None:
    """Scores over the values of a field."""
    choices = None if isinstance(values, Between) else list(values.values)
    at = {trial.number: choices.index(trial.params[name]) if choices else trial.params[name] for trial in trials}
    for label, style, chosen in (
        ("pruned", {"marker": "x", "color": "#888888"}, [t for t in trials if t.state.name == "PRUNED"]),
        ("trained to the end", {"marker": "o", "color": COLOURS[0]}, [t for t in trials if t.state.name == "COMPLETE"]),
        ("start", {"marker": "s", "color": COLOURS[3]}, [t for t in trials if t.number == 0]),
        ("best", {"marker": "*", "color": COLOURS[1], "s": 110}, [t for t in trials if t.number == best]),
    ):
        ax.scatter([at[t.number] for t in chosen], [t.value for t in chosen], label=label, **{"s": 26, **style})
    if choices:
        ax.set_xticks(range(len(choices)), [str(choice) for choice in choices])
    elif isinstance(values, Between) and values.on_log_scale:
        ax.set_xscale("log")
        ticks = (values.low, math.sqrt(values.low * values.high), values.high)
        ax.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
        ax.set_xticks([], minor=True)
    ax.set_title(name, fontsize=10)
    finish(ax)


def finish(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, lw=0.6)
    ax.tick_params(labelsize=8)
