"""Intrinsic rewards: one file per bonus. `rnd.components.BONUSES` names them; docs/bonuses.md: how to write one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnd.components import BONUSES

if TYPE_CHECKING:
    from rnd.bonus.base import Bonus
    from rnd.config import Config
    from rnd.envs.spec import EnvSpec


def make_bonus(config: Config, spec: EnvSpec) -> Bonus:
    """The bonus of a run."""
    options = BONUSES.options(config.bonus, config.bonus_options)
    bonus: Bonus = BONUSES.load(config.bonus)(spec.observation, spec.action, options)
    return bonus
