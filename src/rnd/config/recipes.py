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
}


def with_recipe(config: Config, name: str) -> Config:
    """A game's config with the changes of a recipe. Flags still replace them."""
    if name not in RECIPES:
        raise UserError(f"unknown recipe {name!r}; {nearest(name, RECIPES)}")
    if name != "paper" and not config.env.id.startswith("ALE/"):
        raise UserError(f"--recipe {name} is for Atari; {config.env.id} has settings of its own; leave it out")
    return replace(config, **RECIPES[name])
