"""Intrinsic rewards: one file per bonus. `rnd.components.BONUSES` names them; docs/bonuses.md: how to write one."""

from __future__ import annotations

from rnd.bonus.base import Bonus
from rnd.components import BONUSES
from rnd.config import Config
from rnd.envs.spec import EnvSpec


def make_bonus(config: Config, spec: EnvSpec) -> Bonus:
    """The bonus of a run."""
    cls = BONUSES.load(config.bonus, Bonus)
    bonus: Bonus = cls(spec.observation, spec.action, BONUSES.options(config.bonus, config.bonus_options))
    return bonus
