"""Reading run folders in any state: empty, half-written, running or finished.

Missing or broken files become warnings, never exceptions.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnd.components import resolve
from rnd.config import Config
from rnd.errors import UserError
from rnd.presets import changes
from rnd.record.files import read_json
from rnd.record.metrics import read_csv

Columns = dict[str, np.ndarray]

LARGEST = 2**53
"""Of the numbers in tables and maps: larger ones, and infinities, are damage."""

PLAIN = ("env.id", "bonus", "policy")
"""Fields whose values need no name in a label."""


@dataclass(eq=False)
class Run:
    """One run folder."""

    path: Path
    config: Config | None = None
    about: dict[str, Any] = field(default_factory=dict)
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
                run.config = config
        except (UserError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
            run.warnings.append(f"config.json is not understood: {error}")
    run.about = _json(run, "run.json")
    run.metrics, run.timing = _columns(run, "metrics.csv"), _columns(run, "timing.csv")
    run.places = _places(run)
    _check_progress(run)
    return run


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        raise UserError(f"{path} is not a folder; name the folder of a run, for example one under runs/")


def expand(paths: list[Path]) -> list[Path]:
    """The given run folders, where a folder of run folders is replaced by all runs in it."""
    found: list[Path] = []
    for path in paths:
        _check_folder(path)
        inside = sorted(child.parent for child in path.glob("*/config.json"))
        found += inside if inside and not (path / "config.json").exists() else [path]
    return list(dict.fromkeys(found))


def digest(config: Config) -> str:
    """Eight letters for the experiment: the same for all seeds, devices and numbers of ranks.

    Only what differs from the game's preset counts, so that a new config field changes no digest.
    """
    data = changes(config, "experiment") | {"env.id": config.env.id, "env.num_envs": config.all_envs}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Group:
    """Runs of one experiment, which differ only in the seed."""

    label: str
    runs: tuple[Run, ...]


def grouped(runs: list[Run]) -> list[Group]:
    """Runs grouped by config without the seed; labels name the fields that differ."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = digest(run.config) if run.config else f"unknown {run.path}"
        groups.setdefault(key, []).append(run)
    members = list(groups.values())
    configs = [group[0].config for group in members if group[0].config]
    chosen = {name for config in configs for name in changes(config, "experiment")}
    # Fields that only follow the preset of a game are not named: the game itself is.
    differing = [name for name in differences(configs) if name in chosen or name in PLAIN]
    labels = [_label(group[0], differing) for group in members]
    return [Group(label, tuple(group)) for label, group in zip(labels, members, strict=True)]


def differences(configs: list[Config]) -> list[str]:
    """Dotted names of the fields in which experiments differ."""
    flat = [resolve(config, import_all=False).flat() for config in configs]
    names = dict.fromkeys(name for config in configs for name in resolve(config, import_all=False).named("experiment"))
    return [name for name in names if len({str(values.get(name)) for values in flat}) > 1]


def _label(run: Run, differing: list[str]) -> str:
    if run.config is None:
        return run.name
    if not differing:
        return f"{game_of(run.config)}, {run.config.bonus}, {run.config.policy}"
    flat = resolve(run.config, import_all=False).flat()
    parts = [game_of(run.config) if name == "env.id" else str(flat[name]) for name in PLAIN if name in differing]
    parts += [f"{name.split('.')[-1]} {flat[name]}" for name in differing if name not in PLAIN and name in flat][:4]
    return ", ".join(parts)


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
    absurd = [column for column, values in found.items() if (np.abs(values) > LARGEST).any()]
    for column in absurd:
        found[column][np.abs(found[column]) > LARGEST] = np.nan
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
        if not all(0 <= number < LARGEST for place, visit in found.items() for number in (place, *visit)):
            raise ValueError(f"it has numbers that are not between 0 and {LARGEST:,}")
        return found
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        run.warnings.append(f"rooms.json cannot be read: {error}")
        return {}


def _check_progress(run: Run) -> None:
    """Warn about a run without metrics and about an unfinished run."""
    if math.isnan(run.last("iteration")):
        run.warnings.append("no metrics yet: the run has not ended its first rollout")
    elif run.config and not run.finished:
        seconds = max(0.0, time.time() - (run.path / "metrics.csv").stat().st_mtime)
        ago = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else "hours"
        done, total = int(run.last("iteration")), run.config.iterations
        run.warnings.append(f"not finished: rollout {done:,} of {total:,}; last written {ago} ago")
