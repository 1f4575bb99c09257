"""Recipes: settings of our own for Atari, as changes of the paper's. What each change gives: docs/recipe.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rnd.config.config import Config
from rnd.foundation.errors import UserError, nearest

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "efficient": {
        # 64 optimiser steps per rollout instead of 16, on minibatches of 1,024 samples
        "minibatches": 16,
    },
    "snd": {
        # a target that learns to tell states apart, and a quarter of its error as the bonus, from the first rollout on
        **{"bonus": "snd-v", "bonus_scale": 4.0, "max_bonus": 1.0},
        # 128 optimiser steps per rollout, on 512 single transitions each
        **{"minibatches": 32, "shuffle": True, "max_grad_norm": 0.5},
        "gamma_ext": 0.998,
    },
}


def with_recipe(config: Config, name: str, chosen: dict[str, Any] | None = None) -> Config:
    """A game's config with the changes of a recipe, but for the fields that were chosen otherwise."""
    if name not in RECIPES:
        raise UserError(f"unknown recipe {name!r}; {nearest(name, RECIPES)}")
    if name != "paper" and not config.env.id.startswith("ALE/"):
        raise UserError(f"--recipe {name} is for Atari; {config.env.id} has settings of its own; leave it out")
    return replace(config, **(RECIPES[name] | (chosen or {})))
