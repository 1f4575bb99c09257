"""Recipes change the paper's settings where they say so, and nothing else."""

import pytest

from rnd.config.presets import preset
from rnd.config.recipes import RECIPES, with_recipe
from rnd.foundation.errors import UserError


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_its_changes(name):
    paper = preset("montezuma")
    config = with_recipe(paper, name)
    config.validate()
    before, after = paper.flat(), config.flat()
    assert {field: after[field] for field in after if after[field] != before[field]} == RECIPES[name]
    assert (name == "paper") == (config == paper)


def test_what_is_unknown_or_no_atari_game_is_refused():
    with pytest.raises(UserError, match="unknown recipe 'eficient'; nearest: efficient"):
        with_recipe(preset("montezuma"), "eficient")
    with pytest.raises(UserError, match="--recipe efficient is for Atari"):
        with_recipe(preset("CartPole-v1"), "efficient")
