"""Both streams of advantages against hand-computed values and a plain loop."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rnd.config import Config
from rnd.data.normalize import STEPS_PER_PRODUCT, discounted_sums
from rnd.training import returns
from rnd.training.returns import combine, gae


def test_one_step_by_hand():
    # A = r + gamma V' - V = 1 + 0.9 * 2 - 0.5
    stream = gae(torch.tensor([[1.0]]), torch.tensor([[0.5], [2.0]]), torch.tensor([[False]]), 0.9, 0.95, episodic=True)
    assert stream.advantages_TN.item() == pytest.approx(2.3)
    assert stream.returns_TN.item() == pytest.approx(2.8)


def test_episode_end_in_mid_rollout_by_hand():
    # gamma = lambda = 0.5; the episode ends with step 1.
    rewards, values = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[1.0], [1.0], [2.0], [8.0]])
    done = torch.tensor([[False], [True], [False]])
    # Backwards: A2 = 4 + .5*8 - 2 = 6; A1 = 2 - 1 = 1 (cut); A0 = 1 + .5*1 - 1 + .25*A1 = .75
    cut = gae(rewards, values, done, 0.5, 0.5, episodic=True)
    assert cut.advantages_TN.flatten().tolist() == pytest.approx([0.75, 1.0, 6.0])
    # Never cut: A1 = 2 + .5*2 - 1 + .25*6 = 3.5; A0 = .5 + .25*3.5 = 1.375
    whole = gae(rewards, values, done, 0.5, 0.5, episodic=False)
    assert whole.advantages_TN.flatten().tolist() == pytest.approx([1.375, 3.5, 6.0])


def reference_gae(rewards, values, done, gamma, lam, episodic):
    """Sum of discounted temporal differences, written from the definition instead of the recursion."""
    steps, envs = rewards.shape
    advantages = np.zeros_like(rewards)
    for n in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                alive = 0.0 if episodic and done[k, n] else 1.0
                advantages[t, n] += weight * (rewards[k, n] + gamma * values[k + 1, n] * alive - values[k, n])
                weight *= gamma * lam * alive
    return advantages


@pytest.mark.parametrize("episodic", [True, False])
def test_against_the_definition(episodic):
    random = np.random.default_rng(0)
    rewards, values = random.normal(size=(20, 3)), random.normal(size=(21, 3))
    done = random.random((20, 3)) < 0.2
    stream = gae(torch.tensor(rewards), torch.tensor(values), torch.tensor(done), 0.97, 0.9, episodic)
    np.testing.assert_allclose(stream.advantages_TN.numpy(), reference_gae(rewards, values, done, 0.97, 0.9, episodic))
    np.testing.assert_allclose(stream.returns_TN.numpy(), stream.advantages_TN.numpy() + values[:-1])


@pytest.mark.parametrize("episodic", [True, False])
@pytest.mark.parametrize("steps", [1, 7, 20])
def test_a_long_rollout_is_several_products(episodic, steps, monkeypatch):
    random = np.random.default_rng(5)
    rewards, values = random.normal(size=(20, 3)), random.normal(size=(21, 3))
    done = random.random((20, 3)) < 0.2
    monkeypatch.setattr(returns, "STEPS_PER_PRODUCT", steps)
    stream = gae(torch.tensor(rewards), torch.tensor(values), torch.tensor(done), 0.97, 0.9, episodic)
    np.testing.assert_allclose(stream.advantages_TN.numpy(), reference_gae(rewards, values, done, 0.97, 0.9, episodic))


class Sizes(TorchDispatchMode):
    """Records the size of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and not made._is_view():
            self.largest = max(self.largest, made.numel())
        return made


@pytest.mark.parametrize("episodic", [True, False])
def test_memory_grows_with_the_steps_and_not_with_their_square(episodic):
    steps, envs = 4 * STEPS_PER_PRODUCT, 2
    with Sizes() as made:
        gae(torch.ones(steps, envs), torch.ones(steps + 1, envs), torch.zeros(steps, envs), 0.99, 0.95, episodic)
        discounted_sums(torch.ones(steps, envs, dtype=torch.float64), torch.zeros(envs), 0.99)
    assert made.largest <= envs * STEPS_PER_PRODUCT**2


def streams(seed=1):
    random = np.random.default_rng(seed)
    ext, int_ = random.normal(size=(10, 2)), random.random((10, 2))
    values_ext, values_int = random.normal(size=(11, 2)), random.normal(size=(11, 2))
    done = random.random((10, 2)) < 0.3
    return ext, int_, values_ext, values_int, done


def test_two_heads_have_two_horizons_and_two_discounts():
    ext, int_, values_ext, values_int, done = streams()
    config = Config()
    bootstrap = np.where(done, np.random.default_rng(1).normal(size=done.shape), 0.0)
    targets = combine(config, *map(torch.tensor, (ext, int_, values_ext, values_int, done, bootstrap)))
    advantages_ext = reference_gae(ext + bootstrap, values_ext, done, 0.999, 0.95, episodic=True)
    advantages_int = reference_gae(int_, values_int, done, 0.99, 0.95, episodic=False)
    np.testing.assert_allclose(targets.advantages_TN.numpy(), 2 * advantages_ext + advantages_int)
    np.testing.assert_allclose(targets.returns_ext_TN.numpy(), advantages_ext + values_ext[:-1])
    np.testing.assert_allclose(targets.returns_int_TN.numpy(), advantages_int + values_int[:-1])


def test_one_head_sums_the_rewards_and_has_the_extrinsic_discount():
    ext, int_, values_ext, values_int, done = streams(2)
    config = Config(value_heads=1, episodic_int=True, gamma_ext=0.97, gamma_int=0.5)
    bootstrap = np.where(done, np.random.default_rng(1).normal(size=done.shape), 0.0)
    targets = combine(config, *map(torch.tensor, (ext, int_, values_ext, values_int, done, bootstrap)))
    rewards = 2 * ext + int_ + bootstrap  # the value past a time limit is one of weighted rewards already
    np.testing.assert_allclose(
        targets.advantages_TN.numpy(), reference_gae(rewards, values_ext, done, 0.97, 0.95, episodic=True)
    )


def test_plain_ppo_has_the_extrinsic_advantage_alone():
    ext, _, values_ext, values_int, done = streams(3)
    zeros = np.zeros_like(ext)
    targets = combine(Config(bonus="none"), *map(torch.tensor, (ext, zeros, values_ext, values_int, done, zeros)))
    expected = 2 * reference_gae(ext, values_ext, done, 0.999, 0.95, episodic=True)
    np.testing.assert_allclose(targets.advantages_TN.numpy(), expected)
    assert not targets.returns_int_TN.any()


@pytest.mark.parametrize(("scale_int", "raised"), [(0.01, True), (10.0, False)])
def test_the_weight_of_the_bonus_is_raised_to_its_least_share(scale_int, raised):
    random = np.random.default_rng(3)
    rewards_ext, rewards_int = random.normal(size=(20, 3)), scale_int * random.normal(size=(20, 3))
    done, zeros = torch.zeros(20, 3, dtype=torch.bool), torch.zeros(21, 3)
    given = *(torch.tensor(x).float() for x in (rewards_ext, rewards_int)), zeros, zeros, done, zeros[1:]
    targets = combine(Config(min_bonus_share=0.2), *given)
    ext, int_ = targets.returns_ext_TN.numpy(), targets.returns_int_TN.numpy()
    # without values advantages are the returns, so that the weight of the second stream can be read off
    weight = (targets.advantages_TN.numpy() - 2.0 * ext) / int_
    expected = 0.2 * 2.0 * ext.std() / (0.8 * int_.std()) if raised else 1.0
    np.testing.assert_allclose(weight, expected, rtol=1e-3)
    assert (expected > 1.0) == raised
