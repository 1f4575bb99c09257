"""Intrinsic rewards: one file per bonus, named in `rnd.config.components.BONUSES`; docs/own-bonus.md: your own."""

from __future__ import annotations

from rnd.bonus.base import BonusModule
from rnd.config import Config
from rnd.config.components import BONUSES
from rnd.envs.spec import EnvSpec


def make_bonus(config: Config, spec: EnvSpec) -> BonusModule:
    """The bonus of a run."""
    cls = BONUSES.load(config.bonus, BonusModule)
    bonus: BonusModule = cls(spec.observation, spec.action, BONUSES.options(config.bonus, config.bonus_options))
    return bonus
