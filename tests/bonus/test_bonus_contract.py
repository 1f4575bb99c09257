"""What every bonus promises, tested on every bonus in the registry."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from bonus_cases import (
    ACTIONS,
    BONUSES,
    EPISODIC,
    LEARNING,
    OBSERVATIONS,
    OTHER_LOSS,
    TRAINED,
    TRAINED_TARGETS,
    everything,
    make,
    observations,
    started,
    train,
    transitions,
)

from rnd.bonus import drnd, e3b, prediction, snd
from rnd.bonus.base import kept

pytestmark = pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("name", [*BONUSES])
def test_scores_are_finite_not_negative_and_without_gradient(name, observation, action):
    bonus = started(name, observation, action)
    moves = transitions(observation, action)
    score_TN = bonus.score(moves)
    assert score_TN.shape == moves.actions.shape[:2]
    assert score_TN.dtype == torch.float32
    assert not score_TN.requires_grad
    assert bool(torch.isfinite(score_TN).all())
    assert bool((score_TN >= 0).all())
    assert bool((score_TN > 0).any()) == (name != "none")
    assert bool((score_TN > 0).all()) == (name != "none") or name == "noveld"
    loss = bonus.loss(moves, bonus.targets(moves), everything(moves), 1.0)
    assert loss.shape == ()
    assert bool(torch.isfinite(loss))


@pytest.mark.parametrize("name", [*BONUSES])
def test_scoring_changes_nothing(name, observation):
    bonus = started(name, observation)
    before = copy.deepcopy(bonus.state_dict())
    first = bonus.score(transitions(observation))
    second = bonus.score(transitions(observation))
    assert torch.equal(first, second)
    assert all(torch.equal(value, before[key]) for key, value in bonus.state_dict().items())


@pytest.mark.parametrize("name", [name for name in LEARNING if name not in EPISODIC])
def test_training_lowers_the_bonus_there_and_leaves_a_far_state_higher(name, observation):
    bonus = started(name, observation)
    here = transitions(observation, steps=1, envs=4, seed=1)
    far = transitions(observation, steps=1, envs=4, seed=2)
    before_here = float(bonus.score(here).mean())
    for _ in range(3):
        train(bonus, here, lr=3e-4 if name in (*TRAINED_TARGETS, "drnd") else 3e-3)
    after_here, after_far = float(bonus.score(here).mean()), float(bonus.score(far).mean())
    assert after_here <= before_here / 2
    if observation.kind == "vector" or name not in TRAINED_TARGETS:  # four images of noise teach a target nothing
        assert after_far >= (1.25 if name == "drnd" else 1.5) * after_here  # DRND: a part is the count, at most 0.1


@pytest.mark.parametrize("name", [*BONUSES])
def test_the_same_seed_gives_the_same_bonus(name, observation):
    one, two = started(name, observation, seed=3), started(name, observation, seed=3)
    moves = transitions(observation)
    train(one, moves, updates=3)
    train(two, moves, updates=3)
    assert torch.equal(one.score(moves), two.score(moves))


@pytest.mark.parametrize("name", TRAINED)
def test_another_seed_gives_another_bonus(name, observation):
    moves = transitions(observation)
    one, two = started(name, observation, seed=3), started(name, observation, seed=4)
    assert not torch.equal(one.score(moves), two.score(moves))


@pytest.mark.parametrize("name", [*BONUSES])
def test_save_and_load_are_exact(name, observation):
    moves = transitions(observation)
    saved = started(name, observation, seed=5)
    train(saved, moves, updates=3)
    loaded = make(name, observation, seed=6)
    loaded.load_state_dict(copy.deepcopy(saved.state_dict()))
    assert torch.equal(saved.score(moves), loaded.score(moves))
    train(saved, moves, updates=2)
    train(loaded, moves, updates=2)
    assert torch.equal(saved.score(moves), loaded.score(moves))


@pytest.mark.parametrize("name", TRAINED)
def test_training_moves_what_is_trained_and_nothing_else(name, observation):
    bonus = started(name, observation)
    before = copy.deepcopy(bonus.state_dict())
    moves = transitions(observation)
    targets = bonus.targets(moves)
    optimizer = torch.optim.SGD([p for p in bonus.parameters() if p.requires_grad], lr=0.1)
    bonus.loss(moves, targets, everything(moves), 1.0).backward()
    optimizer.step()
    trained = {key for key, parameter in bonus.named_parameters() if parameter.requires_grad}
    moved = {key for key, value in bonus.state_dict().items() if not torch.equal(value, before[key])}
    assert moved == trained
    assert any(key.startswith("target.") for key in trained) == (name in TRAINED_TARGETS)


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_reach_every_trained_parameter_and_no_frozen_one(name, observation):
    bonus = started(name, observation)
    moves = transitions(observation)
    targets = bonus.targets(moves)
    assert not targets.requires_grad
    bonus.loss(moves, targets, everything(moves), 1.0).backward()
    for parameter in bonus.parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None
            assert bool((parameter.grad != 0).any())
        else:
            assert parameter.grad is None


@pytest.mark.parametrize("name", TRAINED)
def test_only_kept_transitions_train(name, observation):
    bonus = started(name, observation)
    moves = transitions(observation)
    steps, envs = moves.actions.shape
    keep_TN = torch.zeros(steps, envs, dtype=torch.bool)
    keep_TN[2, 1] = keep_TN[3, 0] = True
    loss = bonus.loss(moves, bonus.targets(moves), keep_TN, 0.5)
    if name not in OTHER_LOSS:
        score_TN = bonus.score(moves)
        assert float(loss.detach()) == pytest.approx(float(score_TN[2, 1] + score_TN[3, 0]) / 2, rel=1e-4)
    others = torch.where(keep_TN, 0, 99).to(moves.frames.dtype)
    moved = replace(moves, frames=moves.frames.clone())
    moved.frames[-steps:] += others.view(steps, envs, *(1,) * (moves.frames.dim() - 2))
    if name not in ("dynamics", "snd-vic", "e3b"):  # which read s_t too
        assert torch.equal(loss, bonus.loss(moved, bonus.targets(moved), keep_TN, 0.5))
    nothing = bonus.loss(moves, bonus.targets(moves), torch.zeros_like(keep_TN), 0.5)
    assert float(nothing.detach()) == 0.0


@pytest.mark.parametrize("name", [*BONUSES])
def test_constant_observations_do_not_blow_up(name, observation):
    bonus = make(name, observation)
    moves = transitions(observation)
    moves.frames.fill_(7)
    for _ in range(20):
        bonus.update_statistics(moves.next_obs)
    assert bool(torch.isfinite(bonus.score(moves)).all())
    train(bonus, moves, updates=5)
    moves.frames[-1] += 1  # a constant pixel that moves at last
    score_TN = bonus.score(moves)
    assert bool(torch.isfinite(score_TN).all())
    assert float(score_TN.max()) < 1e3


@pytest.mark.parametrize("name", [*BONUSES])
def test_a_rollout_scored_in_parts_is_the_rollout_scored_at_once(name, observation):
    bonus = started(name, observation)
    moves = transitions(observation, steps=6)
    parts = torch.cat([bonus.score(moves.steps(0, 2)), bonus.score(moves.steps(2, 6))])
    torch.testing.assert_close(parts, bonus.score(moves), rtol=1e-4, atol=1e-5)
    envs = torch.cat([bonus.score(moves.envs(slice(0, 1))), bonus.score(moves.envs(slice(1, 3)))], dim=1)
    torch.testing.assert_close(envs, bonus.score(moves), rtol=1e-4, atol=1e-5)


def test_picked_transitions_are_the_chosen_ones(observation):
    moves = transitions(observation, steps=5, envs=3)
    index_C = torch.tensor([0, 7, 3, 14, 7])
    picked = moves.pick(index_C)
    assert torch.equal(picked.obs[0], moves.obs.flatten(0, 1)[index_C])
    assert torch.equal(picked.next_obs[0], moves.next_obs.flatten(0, 1)[index_C])
    assert torch.equal(picked.actions[0], moves.actions.flatten()[index_C])


@pytest.mark.parametrize("padded", [True, False])
def test_kept_are_the_chosen_ones_with_weights_that_sum_to_one(observation, padded):
    sizes = set()
    for seed in range(20):
        keep_TN = torch.rand(128, 8, generator=torch.Generator().manual_seed(seed)) < 0.25
        index_C, weight_C = kept(keep_TN, 0.25, padded)
        sizes.add(len(index_C))
        assert float(weight_C.sum()) == pytest.approx(1)
        assert set(index_C[weight_C > 0].tolist()) == set(keep_TN.flatten().nonzero().flatten().tolist())
        assert padded or len(index_C) == int(keep_TN.sum())
    assert (len(sizes) == 1) == padded, "padding is there to fix the shape"
    assert max(sizes) < 128 * 8 / 2


@pytest.mark.parametrize("name", TRAINED)
def test_padding_does_not_change_the_loss(name, observation, monkeypatch):
    bonus = started(name, observation)
    moves = transitions(observation, steps=6)
    keep_TN = moves.draw < 0.5
    plain = bonus.loss(moves, bonus.targets(moves), keep_TN, 0.5)
    for module in (prediction, snd, drnd, e3b):
        monkeypatch.setattr(module, "kept", partial(kept, padded=True))
    padded = bonus.loss(moves, bonus.targets(moves), keep_TN, 0.5)
    assert float(plain.detach()) == pytest.approx(float(padded.detach()), rel=1e-5)


def test_observing_in_any_shape_is_the_same(observation):
    flat, stacked = make("rnd", observation), make("rnd", observation)
    obs = observations(observation, 8)
    flat.update_statistics(obs)
    stacked.update_statistics(obs.unflatten(0, (4, 2)))
    moves = transitions(observation)
    assert torch.equal(flat.score(moves), stacked.score(moves))
