"""Distributions against torch.distributions, samples against their probabilities."""

import pytest
import torch
from torch import distributions as D

from rnd.envs.spec import ActionSpec
from rnd.models import actions as act

DISCRETE = ActionSpec("discrete", (5,))
MULTI = ActionSpec("multi_discrete", (2, 3))
BOX = ActionSpec("continuous", (2,), (-1.0, -1.0), (1.0, 1.0))


def test_discrete():
    logits, actions = torch.randn(7, 5), torch.randint(0, 5, (7,))
    reference = D.Categorical(logits=logits)
    torch.testing.assert_close(act.log_prob(DISCRETE, logits, actions), reference.log_prob(actions))
    torch.testing.assert_close(act.entropy(DISCRETE, logits), reference.entropy())


def test_multi_discrete():
    logits = torch.randn(7, 5)
    actions = torch.stack([torch.randint(0, 2, (7,)), torch.randint(0, 3, (7,))], -1)
    parts = [D.Categorical(logits=logits[:, :2]), D.Categorical(logits=logits[:, 2:])]
    expected = parts[0].log_prob(actions[:, 0]) + parts[1].log_prob(actions[:, 1])
    torch.testing.assert_close(act.log_prob(MULTI, logits, actions), expected)
    torch.testing.assert_close(act.entropy(MULTI, logits), parts[0].entropy() + parts[1].entropy())


def test_box():
    logits, actions = torch.randn(7, 4), torch.randn(7, 2)
    reference = D.Independent(D.Normal(logits[:, :2], logits[:, 2:].exp()), 1)
    torch.testing.assert_close(act.log_prob(BOX, logits, actions), reference.log_prob(actions))
    torch.testing.assert_close(act.entropy(BOX, logits), reference.entropy())


@pytest.mark.parametrize("spec", [DISCRETE, MULTI])
def test_samples_have_the_stated_probabilities(spec):
    device, random = torch.device("cpu"), torch.Generator().manual_seed(0)
    logits = torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0]).expand(200_000, 5)
    drawn = act.sample(spec, logits, act.draw_noise(spec, (200_000,), random, device)).view(200_000, -1)
    for k, part in enumerate(logits[0].split(spec.sizes)):
        share = torch.bincount(drawn[:, k], minlength=len(part)) / 200_000
        torch.testing.assert_close(share, part.softmax(-1), atol=0.005, rtol=0)


def test_continuous_samples_are_mean_plus_deviation_times_noise():
    noise = act.draw_noise(BOX, (3,), torch.Generator().manual_seed(0), torch.device("cpu"))
    logits = torch.tensor([1.0, -2.0, 0.5, -1.0]).expand(3, 4)
    expected = torch.tensor([1.0, -2.0]) + torch.tensor([0.5, -1.0]).exp() * noise
    torch.testing.assert_close(act.sample(BOX, logits, noise), expected)
    many = act.draw_noise(BOX, (100_000,), torch.Generator().manual_seed(0), torch.device("cpu"))
    torch.testing.assert_close(many.std(0), torch.ones(2), atol=0.01, rtol=0)
