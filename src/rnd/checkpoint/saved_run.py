"""A run folder that is to be continued: its newest checkpoint, and what is wrong with its files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from rnd.checkpoint import checkpoint
from rnd.checkpoint.checkpoint import Checkpoint
from rnd.checkpoint.folder import FILES, RunFolder
from rnd.checkpoint.metadata import check_number, check_types, damaged_files, shape_mismatch
from rnd.config import Config
from rnd.envs.spec import EnvSpec
from rnd.foundation.console import say
from rnd.foundation.errors import RunError
from rnd.foundation.files import name_aside, read_errors, read_json
from rnd.metrics.metrics import truncate

RANK_FIELDS = ("env.num_envs", "env.first", "ranks")
"""Fields that follow from the number of ranks: they may differ from those of the checkpoint."""


class SavedRun:
    """Rank 0 calls `read` first. On other ranks it is empty."""

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.checkpoint: Checkpoint | None = None
        self._damaged: dict[Path, Path] = {}
        """Damaged files, and the names under which they will be kept."""

    @property
    def state(self) -> dict[str, Any]:
        return self.checkpoint.state if self.checkpoint else {}

    def read(self, console: Console) -> dict[str, Any] | None:
        """Read the newest whole checkpoint and report what is missing, damaged or altered. Changes nothing. Returns
        what all ranks need to know; None: the run begins again."""
        saved = self.checkpoint = self._newest(console)
        if saved:
            with read_errors(saved.path, "a checkpoint of a run"):
                check_types(saved.metadata)
                check_number(saved.state, self.folder.config())
                self._report_changes(Config.from_dict(saved.metadata["config"]), console)
        self._damaged = self._report_damage(console)
        return saved.metadata | {"env": list(saved.state["env"])} if saved else None

    def _newest(self, console: Console) -> Checkpoint | None:
        saved, problems = checkpoint.newest(self.folder.checkpoints)
        for line in checkpoint.fallback(saved, problems):
            say(console, line)
        if not saved:
            say(console, f"{self.folder.checkpoints} has no checkpoint: the run begins again")
        return saved

    def _report_changes(self, config: Config, console: Console) -> None:
        before, now = config.flat(), self.folder.config().flat()
        names = [name for name in now if name not in RANK_FIELDS and before.get(name) != now[name]]
        changed = [f"{name} {before.get(name)} -> {now[name]}" for name in names]
        if changed:
            say(console, f"{self.folder.path / 'config.json'} differs from the checkpoint: {', '.join(changed)}")

    def _report_damage(self, console: Console) -> dict[Path, Path]:
        folder = self.folder.path
        problems = damaged_files(self.checkpoint.metadata if self.checkpoint else None, folder)
        try:
            if not isinstance(read_json(folder / "run.json").get("resumed", []), list):
                raise ValueError("resumed is no list")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            problems["run.json"] = f"it cannot be read: {error}"
        aside = {path: name_aside(path) for name in problems if (path := folder / name).exists()}
        for name, problem in problems.items():
            kept = f"it is kept as {aside[folder / name].name}, and " if folder / name in aside else ""
            say(console, f"{folder / name}: {problem}; {kept}a new one begins")
        return aside

    def check_networks(self, config: Config, spec: EnvSpec) -> None:
        """Refuse a checkpoint whose networks are not those of the config."""
        problem = shape_mismatch(config, spec, self.state) if self.checkpoint else None
        if problem:
            raise RunError(f"the checkpoint {problem}")

    def keep_damaged(self) -> None:
        """Give damaged files another name, so that new ones can take theirs."""
        for path, kept in self._damaged.items():
            path.rename(kept)

    def rewind(self, iteration: int) -> None:
        """Restore the files to the moment of the checkpoint: no row is missing before it, none is doubled after it."""
        assert self.checkpoint is not None
        checkpoint.set_aside(self.folder.checkpoints, after=self.checkpoint.path)
        for name in FILES:
            truncate(self.folder.path / name, self.checkpoint.metadata["sizes"][name])
        path = self.folder.path / "run.json"
        described = read_json(path) if path.exists() else {}
        stamp = {"iteration": iteration, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        self.folder.write_json("run.json", described | {"resumed": [*described.get("resumed", []), stamp]})
