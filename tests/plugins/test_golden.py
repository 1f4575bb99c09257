"""The same stream of observations gives the same bonus, scale and predictor everywhere: there is one implementation."""

from __future__ import annotations

import pytest
import torch
from streams import IMAGES, ROLLOUTS, assert_equal, recorded

BONUSES = ("rnd", "dynamics", "autoencoder", "count", "zero", "none")


def arguments(bonus, one):
    return {"obs": one.obs, "actions": one.actions} if bonus.reads_action else {}


@pytest.mark.parametrize("name", BONUSES)
def test_rollouts_are_those_of_the_trainer_to_the_bit(name):
    stream = recorded(name)
    bonus = stream.bonus()
    assert len(stream.rollouts) == ROLLOUTS >= 50
    assert sum(int(one.dones.sum()) for one in stream.rollouts) > 50
    for one in stream.rollouts:
        given = arguments(bonus, one)
        assert torch.equal(bonus.score(one.next_obs, **given), one.raw)
        assert torch.equal(bonus.observe(one.next_obs, **given), one.scaled)
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler)


@pytest.mark.parametrize("name", BONUSES)
def test_steps_are_those_of_the_trainer(name):
    """The predictor's weights to the bit; scores and scale are computed in other batches."""
    stream = recorded(name)
    bonus = stream.bonus(update_every=len(stream.rollouts[0].raw))
    for one in stream.rollouts:
        for t, next_obs in enumerate(one.next_obs):
            given = {"obs": one.obs[t], "actions": one.actions[t]} if bonus.reads_action else {}
            torch.testing.assert_close(bonus.score(next_obs, **given), one.raw[t], rtol=1e-6, atol=1e-6)
            bonus.observe(next_obs, **given)
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler, close=True)


@pytest.mark.parametrize("name", ["rnd", "dynamics"])
def test_pictures_are_those_of_the_trainer_to_the_bit(name):
    stream = recorded(name, IMAGES, rollouts=6)
    bonus = stream.bonus()
    for one in stream.rollouts:
        assert torch.equal(bonus.observe(one.next_obs, **arguments(bonus, one)), one.scaled)
        bonus.update()
        assert_equal(bonus.module, one.state)
        assert_equal(bonus.scaler, one.scaler)
