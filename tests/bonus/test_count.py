"""Counts against Python's own counter, and the hash against the scalar SplitMix64."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from bonus_cases import DISCRETE, IMAGE, VECTOR, observations

from rnd.bonus import hashing
from rnd.bonus.count import Count
from rnd.data.transitions import Transitions
from rnd.envs.splitmix import mix

MASK = (1 << 64) - 1


def bonus(observation, power="0.5"):
    return Count(observation, DISCRETE, Count.Options(power=power))


def arriving_at(obs):
    return Transitions.pairs(torch.zeros_like(obs), torch.zeros(len(obs), dtype=torch.int64), obs)


@pytest.mark.parametrize(("power", "exponent"), [("1", -1.0), ("0.5", -0.5)])
@pytest.mark.parametrize("observation", [IMAGE, VECTOR], ids=["image", "vector"])
def test_the_bonus_is_the_power_of_the_true_count(observation, power, exponent):
    states = observations(observation, 30, seed=1)
    visits = torch.randint(0, 30, (500,), generator=torch.Generator().manual_seed(2))
    counter = Counter(visits.tolist())
    counting = bonus(observation, power)
    counting.update_statistics(states[visits])
    expected = torch.tensor([[(1 + counter[i]) ** exponent for i in range(30)]])
    torch.testing.assert_close(counting.score(arriving_at(states)), expected)


def test_one_bit_is_another_state():
    black = torch.zeros(1, 84, 84, dtype=torch.uint8)
    counting = bonus(IMAGE)
    counting.update_statistics(black.expand(8, -1, -1))
    for place in ((0, 0), (41, 7), (83, 83)):
        other = black.clone()
        other[(0, *place)] = 1
        assert float(counting.score(arriving_at(other))) == 1.0
    assert float(counting.score(arriving_at(black))) == pytest.approx(1 / 3)


def test_the_order_of_the_components_counts():
    vector = torch.arange(10.0)[None]
    counting = bonus(VECTOR)
    counting.update_statistics(vector)
    assert float(counting.score(arriving_at(vector.flip(1)))) == 1.0


def test_the_two_zeros_are_one_state():
    counting = bonus(VECTOR, "1")
    counting.update_statistics(torch.zeros(1, 10))
    assert float(counting.score(arriving_at(-torch.zeros(1, 10)))) == 0.5


def test_mix_is_splitmix64():
    words = [0, 1, MASK, 0x8000000000000000, 0x123456789ABCDEF0]
    mixed = hashing.mix(torch.tensor([hashing.signed(word) for word in words]))
    assert [int(word) & MASK for word in mixed] == [mix(word) for word in words]


def test_many_states_in_bounded_memory():
    """100,000 distinct states: never too low, and too high for fewer than one in a thousand."""
    states = torch.arange(100_000.0)[:, None].expand(-1, 10)
    counting = bonus(VECTOR, "1")
    size = counting.counts_RS.numel()
    counting.update_statistics(states)
    score = counting.score(arriving_at(states))
    assert counting.counts_RS.numel() == size
    assert bool((score <= 0.5).all())
    assert int((score < 0.5).sum()) < 100
