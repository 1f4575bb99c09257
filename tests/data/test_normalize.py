"""Running statistics against numpy over the whole stream, and the return filter against a loop over time."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from rnd.data import normalize
from rnd.data.normalize import START_COUNT, ReturnScaler, RunningMoments, Whitener, batch_moments


def test_moments_equal_numpy_over_uneven_batches():
    random = np.random.default_rng(0)
    stream = random.normal(3.0, 2.0, (5000, 4))
    moments = RunningMoments((4,))
    for part in np.split(stream, [1, 10, 3000]):
        moments.update(torch.tensor(part))
    # The start counts as 1e-4 samples of mean 0 and variance 1.
    np.testing.assert_allclose(moments.mean.numpy(), stream.sum(0) / (5000 + START_COUNT), rtol=1e-9)
    np.testing.assert_allclose(moments.var.numpy(), stream.var(0), rtol=1e-6)


def test_bytes_and_batches_larger_than_a_chunk():
    frames = torch.randint(0, 256, (5000, 3, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    moments = RunningMoments((3, 3))
    moments.update(frames)
    np.testing.assert_allclose(moments.mean.numpy(), frames.double().mean(0).numpy(), rtol=1e-6)
    np.testing.assert_allclose(moments.var.numpy(), frames.double().var(0, correction=0).numpy(), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 255, 256, 700])
def test_moments_of_bytes_are_exact(count):
    frames = np.full((count, 4), 255, np.uint8)  # the largest sums, a pixel that never changes, and two that do
    frames[:, 1] = 7
    frames[::3, 2] = 0
    frames[:, 3] = np.random.default_rng(0).integers(0, 256, count)
    mean, var, _ = batch_moments(torch.tensor(frames))
    for column, m, v in zip(frames.T.tolist(), mean.tolist(), var.tolist(), strict=True):
        assert m == float(Fraction(sum(column), count))
        assert v == float(Fraction(sum(x * x for x in column), count) - Fraction(sum(column), count) ** 2)


def test_a_thousand_million_samples_stay_accurate():
    moments = RunningMoments()
    batch = torch.tensor([99.0, 101.0])
    moments.update(batch)
    for _ in range(29):  # doubles what was seen: 2^30 samples
        moments.merge(moments.mean.clone(), moments.var.clone(), float(moments.count))
    moments.update(batch)
    assert float(moments.count) > 1e9
    assert float(moments.mean) == pytest.approx(100.0, rel=1e-4)
    assert float(moments.var) == pytest.approx(1.0, rel=1.0)
    for _ in range(1000):
        moments.update(batch)
    assert torch.isfinite(moments.std)


def test_whitening_is_per_pixel_and_clipped():
    whiten = Whitener((2,), clip=5.0)
    data = torch.tensor([[0.0, 100.0], [2.0, 300.0]] * 500)
    whiten.update(data)
    out = whiten(torch.tensor([[0.0, 100.0], [2.0, 300.0], [50.0, -5000.0]]))
    np.testing.assert_allclose(out.numpy(), [[-1, -1], [1, 1], [5, -5]], atol=1e-3)


def test_constant_pixels_do_not_blow_up():
    whiten = Whitener((3,), clip=5.0)
    constant = torch.tensor([0.0, 7.0, 255.0]).expand(100_000, 3)
    whiten.update(constant)
    assert torch.isfinite(whiten(constant[:1])).all()
    assert whiten(constant[:1]).abs().max() < 0.1
    whiten.moments.var.zero_()
    assert torch.isfinite(whiten(constant[:1] + 1)).all()


@pytest.mark.parametrize("steps", [2, 256])
def test_return_filter_runs_over_time_and_across_rollouts(steps, monkeypatch):
    monkeypatch.setattr(normalize, "STEPS_PER_PRODUCT", steps)
    random = np.random.default_rng(1)
    rewards = random.random((12, 3))
    scaler = ReturnScaler(3, gamma=0.9)
    outputs = [scaler(torch.tensor(rewards[:5])), scaler(torch.tensor(rewards[5:]))]

    sums, carry = [], np.zeros(3)
    for row in rewards:  # forward in time, never reset
        carry = 0.9 * carry + row
        sums.append(carry)
    np.testing.assert_allclose(scaler.carry_N.numpy(), carry)
    assert float(scaler.moments.var) == pytest.approx(np.var(sums), rel=1e-3)
    first = np.array(sums[:5])
    # The scale is that of all sums seen so far, this rollout's included; no mean is subtracted.
    np.testing.assert_allclose(outputs[0].numpy(), rewards[:5] / first.std(), rtol=1e-3)
    np.testing.assert_allclose(outputs[1].numpy(), rewards[5:] / np.std(sums), rtol=1e-3)


def test_rewards_are_made_smaller_and_never_larger():
    scaler, sparse = ReturnScaler(4, 0.9, extrinsic=True), torch.zeros(50, 4)
    sparse[-1, 0] = 1.0
    assert torch.equal(scaler(sparse), sparse)
    large = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 100
    assert float((large / scaler(large)).min()) > 50


def test_a_fixed_scale_and_a_maximum_replace_the_running_one():
    """In numpy. The statistics advance all the same: they are part of the state."""
    rewards = torch.rand(50, 4, generator=torch.Generator().manual_seed(0)) * 5
    scaler, running = ReturnScaler(4, 0.9, fixed=2.0, maximum=1.5), ReturnScaler(4, 0.9)
    np.testing.assert_allclose(scaler(rewards), np.minimum(rewards.numpy() / 2, 1.5), rtol=1e-6)
    scaled = running(rewards)
    assert torch.equal(ReturnScaler(4, 0.9, maximum=0.2)(rewards), scaled.clamp_max(0.2)) and scaled.max() > 0.2
    assert {name: x.tolist() for name, x in scaler.state_dict().items()} == {
        name: x.tolist() for name, x in running.state_dict().items()
    }


def test_steady_rewards_are_divided_by_their_return_although_it_does_not_vary():
    scaler = ReturnScaler(4, 0.9, extrinsic=True)
    assert float(scaler(-torch.ones(1000, 4)).mean()) == pytest.approx(-0.1, rel=0.02)


def test_a_scale_that_forgets_weighs_samples_by_their_age():
    """Against weights of one half per half-life, in numpy. Without a half-life nothing is forgotten."""
    random = np.random.default_rng(0)
    batches = [random.normal(size=64) * scale for scale in (10.0, 3.0, 1.0, 1.0)]
    moments = RunningMoments(half_life=32.0)
    for batch in batches:
        moments.update(torch.tensor(batch))
    weights = np.concatenate([np.full(64, 0.5 ** ((3 - k) * 64 / 32)) for k in range(4)])
    samples = np.concatenate(batches)
    mean = np.average(samples, weights=weights)
    assert float(moments.mean) == pytest.approx(mean, abs=1e-6)
    assert float(moments.var) == pytest.approx(np.average((samples - mean) ** 2, weights=weights), rel=1e-5)
    remembering = RunningMoments()
    for batch in batches:
        remembering.update(torch.tensor(batch))
    assert float(remembering.var) == pytest.approx(samples.var(), rel=1e-5)
    assert float(moments.std) < float(remembering.std) / 2
