"""Metrics to Weights & Biases, where the user has installed it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rnd.config import WriterOptions, recording_field
from rnd.foundation.errors import UserError
from rnd.metrics.metrics import Row, RunInfo


class WandbWriter:
    """One W&B run per run folder, continued when the run is resumed."""

    @dataclass(frozen=True)
    class Options(WriterOptions):
        """Weights & Biases."""

        project: str = recording_field("rnd")
        """Project of the runs."""

    @staticmethod
    def check() -> None:
        """Refuse before a run begins, not after its first iteration."""
        if find_spec("wandb") is None:
            raise UserError("--writers wandb needs Weights & Biases: pip install wandb")

    def __init__(self, run: RunInfo, options: Options):
        import wandb

        name, config = run.folder.name, run.config.to_dict()
        self._run: Any = wandb.init(
            project=options.project, name=name, dir=str(run.folder), config=config, resume="allow", id=name
        )

    def write(self, row: Row, timing: Row) -> None:
        values = {k: v for k, v in {**row, **timing}.items() if v is not None}
        self._run.log(values, step=row["frames"])

    def flush(self) -> None:
        """W&B sends by itself."""

    def close(self) -> None:
        self._run.finish()
