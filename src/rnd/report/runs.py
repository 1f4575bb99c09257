"""Reading run folders in any state: empty, half-written, running or finished.

Missing or broken files become warnings, never exceptions.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnd.checkpoint.folder import nearest_run
from rnd.config import Config
from rnd.config.components import resolve
from rnd.config.presets import changes
from rnd.foundation.errors import UserError
from rnd.foundation.files import read_json
from rnd.foundation.text import count
from rnd.metrics.metrics import read_csv

Columns = dict[str, np.ndarray]

MAX_NUMBER = 2**53
"""Limit of the numbers in tables and maps: larger ones, and infinities, are damage."""

RUN_FILES = ("config.json", "metrics.csv", "run.json")
"""A folder with one of these is a run's."""
PLAIN = ("bonus", "policy")
"""Fields whose values need no name in a label."""
LABEL_FIELDS = 4
"""Fields in a label, unless more are needed to distinguish two groups."""


@dataclass(eq=False)
class Run:
    """One run folder."""

    path: Path
    config: Config | None = None
    described: dict[str, Any] = field(default_factory=dict)
    metrics: Columns = field(default_factory=dict)
    timing: Columns = field(default_factory=dict)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Room or grid cell to (frame of the first entry, number of entries)."""
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def iterations(self) -> int:
        return len(self.metrics.get("iteration", ()))

    @property
    def finished(self) -> bool:
        return self.config is not None and self.last("iteration") >= self.config.iterations

    @property
    def state(self) -> str:
        """finished, or how far it came: a run that was stopped is no error."""
        if not self.iterations:
            return "no data"
        done = count(self.last("frames"))
        if self.config is None:
            return f"{done} frames; without config.json nobody knows of how many"
        return "finished" if self.finished else f"unfinished: {done} of {count(self.config.frames)} frames"

    def last(self, name: str) -> float:
        """The last value of a metric; NaN where there is none."""
        values = self.metrics.get(name, np.empty(0))
        known = values[np.isfinite(values)]
        return float(known[-1]) if len(known) else math.nan

    @property
    def video(self) -> Path | None:
        """The newest video that `rnd watch` wrote into the folder."""
        inside = [] if (self.path / "watch").is_symlink() else [*self.path.glob("watch/*.mp4")]
        videos = sorted(inside, key=lambda path: path.lstat().st_mtime)
        return videos[-1] if videos else None


def read_run(path: Path) -> Run:
    """Read all that a run folder has; problems are in `warnings`."""
    _check_folder(path)
    run = Run(path)
    if data := _json(run, "config.json"):
        try:
            config = Config.from_dict(data)
            changes(config, "experiment")
            if config.iterations > 0:
                run.config = resolve(config, import_all=False)
        except (UserError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
            run.warnings.append(f"config.json is not understood: {error}")
    run.described = _json(run, "run.json")
    run.metrics, run.timing = _columns(run, "metrics.csv"), _columns(run, "timing.csv")
    run.places = _places(run)
    if not run.iterations:
        run.warnings.append("no metrics yet: the run has not ended its first rollout")
    return run


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        advice = nearest_run(path) or "; name the folder of a run, for example one under runs/"
        raise UserError(f"{path} is not a folder{advice}")


def expand(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """The given run folders, where a folder of run folders is replaced by all runs in it; and the folders that hold
    none, where others do: `runs/*` also names those of videos and of logs."""
    found: list[Path] = []
    empty: list[Path] = []
    for path in paths:
        _check_folder(path)
        inside = [path] if _is_run(path) else _runs_in(path)
        found += inside
        if not inside:
            empty.append(path)
    if not found:
        within = [path / "runs" for path in empty if _runs_in(path / "runs")]  # of a sweep, or of an experiment
        near = f"nearest: {within[0]}" if within else "name a run folder, or a folder of run folders, for example runs"
        raise UserError(f"{empty[0]} holds no run; {near}")
    return list(dict.fromkeys(found)), empty


def _is_run(path: Path) -> bool:
    return any((path / name).exists() for name in RUN_FILES)


def _runs_in(path: Path) -> list[Path]:
    """The run folders in a folder. A name with a dot is a run that is being made, or that a killed process left so."""
    folders = {child.parent for name in RUN_FILES for child in path.glob(f"*/{name}")}
    return sorted(folder for folder in folders if not folder.name.startswith("."))


def digest(config: Config) -> str:
    """Eight letters for the experiment: the same for all seeds, devices and numbers of ranks.

    Only what differs from the game's preset counts, so that a new config field changes no digest.
    """
    data = changes(config, "experiment") | {"env.id": config.env.id, "env.num_envs": config.all_envs}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]


def averaged(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The runs that a mean is taken of: the finished ones. Where none is finished all, and the mean is marked."""
    return tuple(run for run in runs if run.finished) or runs


@dataclass(frozen=True)
class Group:
    """Runs of one experiment, which differ only in the seed."""

    label: str
    """What distinguishes it from the other groups of its environment."""
    runs: tuple[Run, ...]
    colour: int = 0
    """The same for the same label in all environments."""
    marked: bool = False
    """No run of it is finished, and there are others to compare it with: its mean is dashed."""

    @property
    def env_id(self) -> str:
        return self.runs[0].config.env.id if self.runs[0].config else "unknown environment"

    @property
    def averaged(self) -> tuple[Run, ...]:
        return averaged(self.runs)

    @property
    def left_out(self) -> tuple[Run, ...]:
        """Unfinished runs, where others are finished."""
        return tuple(run for run in self.runs if run not in self.averaged)


def grouped(runs: list[Run]) -> list[Group]:
    """Runs grouped by config without the seed, one environment after the other. Labels are unique within each."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        env_id = run.config.env.id if run.config else ""
        groups.setdefault((env_id, digest(run.config) if run.config else str(run.path)), []).append(run)
    by_env: dict[str, list[list[Run]]] = {}
    for (env_id, _), members in groups.items():
        by_env.setdefault(env_id, []).append(members)
    fields = dict.fromkeys(name for members in by_env.values() for name in _differing(members))
    found = [
        (label, tuple(group))
        for members in by_env.values()
        for label, group in zip(_labels(members, list(fields)), members, strict=True)
    ]
    colours = {label: i for i, label in enumerate(dict.fromkeys(label for label, _ in found))}
    marks = [len(runs) > 1 and not any(run.finished for run in group) for _, group in found]
    return [Group(label, group, colours[label], mark) for (label, group), mark in zip(found, marks, strict=True)]


def _differing(members: list[list[Run]]) -> list[str]:
    """Fields that somebody chose, and that differ between the groups of an environment."""
    configs = [group[0].config for group in members if group[0].config]
    chosen = {name for config in configs for name in changes(config, "experiment")}
    return [name for name in differences(configs) if name in chosen or name == "env.num_envs"]


def _labels(members: list[list[Run]], fields: list[str]) -> list[str]:
    """One label per group: the first fields that differ, and more of them where labels would be equal."""
    values = [_values(group[0].config) if group[0].config else {} for group in members]
    used = [name for name in fields if name in PLAIN] + [name for name in fields if name not in PLAIN]
    shown = used[:LABEL_FIELDS] or [*PLAIN]
    for name in used[LABEL_FIELDS:]:
        if len(_distinct(values, [*shown, name])) > len(_distinct(values, shown)):
            shown.append(name)
    labels = [
        ", ".join(f"{'' if name in PLAIN else name.split('.')[-1] + ' '}{own[name]}" for name in shown if name in own)
        or group[0].name
        for own, group in zip(values, members, strict=True)
    ]
    return [
        label if labels.count(label) == 1 else f"{label}, {group[0].path}"
        for label, group in zip(labels, members, strict=True)
    ]


def _distinct(values: list[dict[str, Any]], names: list[str]) -> set[tuple[str, ...]]:
    return {tuple(str(own.get(name)) for name in names) for own in values}


def _values(config: Config) -> dict[str, Any]:
    """All fields by dotted name; environments are those of all ranks."""
    return resolve(config, import_all=False).flat() | {"env.num_envs": config.all_envs}


def differences(configs: list[Config]) -> list[str]:
    """Dotted names of the fields in which experiments differ."""
    flat = [_values(config) for config in configs]
    names = dict.fromkeys(name for config in configs for name in resolve(config, import_all=False).named("experiment"))
    return [name for name in names if len({str(values.get(name)) for values in flat}) > 1]


def game_of(config: Config) -> str:
    return config.env.id.removeprefix("ALE/").removesuffix("-v5").removesuffix("-v0").removesuffix("-v1")


def _json(run: Run, name: str) -> dict[str, Any]:
    try:
        data = read_json(run.path / name)
        if isinstance(data, dict):
            return data
        run.warnings.append(f"{name} holds no fields")
    except FileNotFoundError:
        run.warnings.append(f"{name} is missing")
    except (OSError, ValueError, RecursionError) as error:
        run.warnings.append(f"{name} cannot be read: {error}")
    return {}


def _columns(run: Run, name: str) -> Columns:
    try:
        columns = read_csv(run.path / name)
    except (OSError, ValueError) as error:
        run.warnings.append(f"{name} cannot be read: {error}")
        return {}
    found = {column: np.asarray(values, np.float64) for column, values in columns.items()}
    absurd = [column for column, values in found.items() if (np.abs(values) > MAX_NUMBER).any()]
    for column in absurd:
        found[column][np.abs(found[column]) > MAX_NUMBER] = np.nan
    if absurd:
        run.warnings.append(f"{name} has numbers that cannot be drawn, in {', '.join(absurd)}")
    whole = np.isfinite(found.get("frames", np.empty(0)))  # a row without its frames has no place on an axis
    return {column: values[whole] for column, values in found.items()} if len(whole) else found


def _places(run: Run) -> dict[int, tuple[int, int]]:
    path = run.path / "rooms.json"
    if not path.exists():
        return {}
    try:
        found = {int(place): (int(first), int(times)) for place, (first, times) in read_json(path).items()}
        if not all(0 <= number < MAX_NUMBER for place, visit in found.items() for number in (place, *visit)):
            raise ValueError(f"it has numbers that are not between 0 and {MAX_NUMBER:,}")
        return found
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        run.warnings.append(f"rooms.json cannot be read: {error}")
        return {}
