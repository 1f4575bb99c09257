"""Bonuses and policies of images with a vector: both parts are read, and each is whitened in its own way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from bonus_cases import BONUSES, DISCRETE, MIXED, TRAINED, everything, make, observations, started, train, transitions

from rnd.config import Config, EnvConfig
from rnd.data.normalize import make_whitener
from rnd.data.transitions import Transitions
from rnd.envs.packed import join, split
from rnd.envs.spec import EnvSpec, ObservationSpec
from rnd.models.networks import encoder
from rnd.models.policy import make_policy

NUMBERS = MIXED.shape[0] - 3 * 4
"""Where the bytes of the vector begin."""


def changed(moves: Transitions, part: str) -> Transitions:
    """The same transitions with another last image, or another last vector."""
    frames, other = moves.frames.clone(), observations(MIXED, *moves.frames.shape[1:2], seed=5)
    where = slice(NUMBERS, None) if part == "vector" else slice(0, NUMBERS)
    frames[-1, :, where] = other[:, where]
    return replace(moves, frames=frames)


@pytest.mark.parametrize("name", [name for name in BONUSES if name != "none"])
def test_a_bonus_depends_on_images_and_vector(name):
    bonus, moves = started(name, MIXED), transitions(MIXED)
    score_TN = bonus.score(moves)
    assert bool(torch.isfinite(score_TN).all()) and bool((score_TN >= 0).all())
    if name == "count":
        bonus.update_statistics(moves.next_obs)
        score_TN = bonus.score(moves)
    for part in ("image", "vector"):
        other_TN = bonus.score(changed(moves, part))
        assert torch.equal(other_TN[:-1], score_TN[:-1])
        assert not bool((other_TN[-1] == score_TN[-1]).any()), part


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_reach_every_trained_parameter(name):
    bonus, moves = started(name, MIXED), transitions(MIXED)
    bonus.loss(moves, bonus.targets(moves), everything(moves), 1.0).backward()
    for parameter in bonus.parameters():
        assert parameter.requires_grad == (parameter.grad is not None and bool((parameter.grad != 0).any()))
    nothing = bonus.loss(moves, bonus.targets(moves), torch.zeros_like(everything(moves)), 0.5)
    assert float(nothing.detach()) == 0.0


def test_training_lowers_the_bonus_and_another_vector_raises_it_again():
    bonus, here = started("rnd", MIXED), transitions(MIXED, steps=1, envs=4, seed=1)
    before = float(bonus.score(here).mean())
    for _ in range(6):
        train(bonus, here, lr=1e-3)
    after, elsewhere = float(bonus.score(here).mean()), float(bonus.score(changed(here, "vector")).mean())
    assert after < before / 10 and elsewhere > 2 * after


def test_images_are_whitened_per_pixel_and_vectors_per_component():
    """Against numpy, over two batches; the count of the first statistics is 1e-4 with mean 0 and variance 1."""
    whiten, first, second = make_whitener(MIXED, 2.0), observations(MIXED, 7, 2), observations(MIXED, 5, seed=1)
    whiten.update(first)
    whiten.update(second)
    parts = [
        np.concatenate([x.numpy() for x in split(obs.reshape(-1, *MIXED.shape), NUMBERS)], 1) for obs in (first, second)
    ]
    rows, weight = np.concatenate(parts).astype(np.float64), 1e-4
    mean = rows.sum(0) / (len(rows) + weight)
    variance = (weight + (rows**2).sum(0)) / (len(rows) + weight) - mean**2
    expected = np.clip((rows - mean) / np.sqrt(variance), -2, 2)[-5:]
    np.testing.assert_allclose(whiten(second).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_both_parts_have_as_many_features():
    torso, size = encoder(MIXED, 32)
    assert size == 64 and torso(torch.zeros(2, NUMBERS + 3)).shape == (2, 64)
    images = ObservationSpec("mixed", (2 * 84 * 84,), images=2)
    assert make("rnd", images).score(transitions(images)).shape == (4, 3)


@pytest.mark.parametrize("policy", ["cnn", "gru"])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_policy_depends_on_images_and_on_the_newest_vector(policy, normalize):
    torch.manual_seed(0)
    spec = EnvSpec("test", replace(MIXED, one_hot=(False, False, True)), DISCRETE)
    network = make_policy(Config(env=EnvConfig(id="test"), policy=policy, normalize_obs=normalize), spec)
    stacks = observations(MIXED, 6, 4)
    network.update_statistics(stacks)
    hidden = torch.zeros(6, network.hidden_size)
    logits = network(stacks, hidden)[0].logits
    for frame, part, same in ((-1, "image", False), (0, "image", False), (-1, "vector", False), (0, "vector", True)):
        other, where = stacks.clone(), slice(NUMBERS, None) if part == "vector" else slice(0, NUMBERS)
        other[:, frame, where] = observations(MIXED, 6, seed=7)[:, where]
        assert torch.equal(network(other, hidden)[0].logits, logits) == same, (frame, part)
    steps = network.unroll(stacks[:, None].expand(6, 2, 4, -1), hidden[:2], torch.ones(6, 2, dtype=torch.bool))
    torch.testing.assert_close(steps.logits[:, 1], logits)


def test_a_policy_whitens_its_vector_and_leaves_images_and_choices():
    spec = EnvSpec("test", replace(MIXED, one_hot=(False, False, True)), DISCRETE)
    network = make_policy(Config(env=EnvConfig(id="test"), normalize_obs=True), spec)
    rows = observations(MIXED, 50)
    network.update_statistics(rows)
    before, after = split(rows, NUMBERS), split(network.normalized(rows), NUMBERS)
    assert torch.equal(after[0], before[0]) and torch.equal(after[1][:, 2], before[1][:, 2])
    numbers = before[1][:, :2].double()
    expected = (numbers - numbers.mean(0)) / numbers.std(0, correction=0)
    torch.testing.assert_close(after[1][:, :2].double(), expected, rtol=1e-4, atol=1e-4)


def test_rows_are_joined_as_they_were_split():
    rows = observations(MIXED, 3, 2)
    image, vector = split(rows, NUMBERS)
    assert image.dtype == torch.uint8 and vector.shape == (3, 2, 3) and vector.dtype == torch.float32
    assert torch.equal(join(image, vector), rows)
    none = split(rows[..., :NUMBERS], NUMBERS)[1]
    assert none.shape == (3, 2, 0) and torch.equal(join(image, none), image)
