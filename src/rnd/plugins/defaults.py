"""What other people's agents start from: the config with which `rnd train` starts on the same kind of observations."""

from __future__ import annotations

import dataclasses
from typing import Any

from rnd.config import Config
from rnd.config.presets import small, with_bonus
from rnd.envs.factories import kind_of_observation
from rnd.envs.spaces import WHO, ObservationEncoder


def starting_config(observation_space: Any) -> Config:
    """The preset of numbers, choices or images; the paper's config for frames as those of Atari, 84x84 and grey."""
    observations = ObservationEncoder(observation_space)
    if observations.spec.kind == "image" and observations.vectorised:
        return Config()
    return small(WHO, kind_of_observation(observations.spec))


def bonus_arguments(config: Config, bonus: str) -> dict[str, Any]:
    """The sizes and rates of a config with a bonus, as arguments of `rnd.Bonus`."""
    config = with_bonus(config, bonus)
    options = dataclasses.asdict(config.bonus_options)
    return {"lr": config.bonus_lr or config.lr, "epochs": config.epochs, **options}
