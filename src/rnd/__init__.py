"""Exploration by Random Network Distillation (Burda et al., 2018) as software.

`rnd.Bonus` is the intrinsic reward for agents of your own, `rnd.train` and `rnd.load` are the paper's agent: see
docs/plugins.md. `rnd.Novelty` detects what is new in any data: docs/novelty.md. Names are imported when they are used,
so that `import rnd` costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rnd.api import Agent, load, train
    from rnd.config import Config
    from rnd.plugins.bonus import Bonus
    from rnd.plugins.novelty import Novelty
    from rnd.training.evaluation import Evaluation
    from rnd.training.returns import two_streams

__version__ = "0.2.0"

_HOMES = {
    "Agent": "rnd.api",
    "Bonus": "rnd.plugins.bonus",
    "Config": "rnd.config",
    "Evaluation": "rnd.training.evaluation",
    "Novelty": "rnd.plugins.novelty",
    "load": "rnd.api",
    "train": "rnd.api",
    "two_streams": "rnd.training.returns",
}
"""Public names and the modules that define them."""

__all__ = ["Agent", "Bonus", "Config", "Evaluation", "Novelty", "__version__", "load", "train", "two_streams"]


def _share_cores() -> None:
    """Shorten the spinning wait of PyTorch's threads; has an effect until torch is imported.

    By default they spin for milliseconds, and two programs on one machine take ten times as long. 1,000 rounds are
    GNU OpenMP's own value for a machine with more threads than cores.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


_share_cores()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rnd' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
