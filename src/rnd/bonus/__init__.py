"""Intrinsic rewards: one file a bonus, one line in the registry.

`register` adds one from outside the package; docs/bonuses.md shows how.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from rnd.errors import UserError, nearest

if TYPE_CHECKING:
    from rnd.bonus.contract import Bonus
    from rnd.config import BonusConfig
    from rnd.envs.spec import ActionSpec, ObservationSpec

    Factory = Callable[[ObservationSpec, ActionSpec, BonusConfig], Bonus]

REGISTRY: dict[str, str | Factory] = {
    "rnd": "rnd.bonus.rnd:RND",
    "dynamics": "rnd.bonus.dynamics:Dynamics",
    "autoencoder": "rnd.bonus.autoencoder:Autoencoder",
    "count": "rnd.bonus.count:Count",
    "zero": "rnd.bonus.zero:Zero",
    "none": "rnd.bonus.none:NoBonus",
}
"""Name of a bonus to its class, or to `module:class`, so that names are known without importing torch."""


def register(name: str, factory: Factory) -> None:
    """Make a bonus known under a name, for configs and the command line."""
    REGISTRY[name] = factory


def check(name: str) -> None:
    """Refuse an unknown name."""
    if name not in REGISTRY:
        raise UserError(f"unknown bonus {name!r}; {nearest(name, REGISTRY)}")


def make(name: str, observation: ObservationSpec, action: ActionSpec, config: BonusConfig) -> Bonus:
    """The bonus of a run."""
    check(name)
    factory = REGISTRY[name]
    if isinstance(factory, str):
        module, attribute = factory.split(":")
        factory = getattr(importlib.import_module(module), attribute)
    assert callable(factory)
    return factory(observation, action, config)
