"""The detector: scikit-learn's own checks, false alarms at the stated rate, exact saving, episodes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch

import rnd
from rnd.foundation.errors import UserError
from rnd.plugins.alarms import EpisodeThreshold, conformal_limit, window_means

Small = partial(rnd.Novelty, features=16, hidden=32, max_steps=60, batch=64, device="cpu")


def ring(count: int, seed: int, radius: float = 1.0) -> np.ndarray:
    """Points near a circle in five dimensions."""
    random = np.random.default_rng(seed)
    angle = random.uniform(0, 2 * np.pi, count)
    noise = 0.1 * random.standard_normal((count, 5))
    noise[:, 0] += radius * np.cos(angle)
    noise[:, 1] += radius * np.sin(angle)
    return noise


@pytest.fixture(scope="module")
def fitted() -> rnd.Novelty:
    return Small().fit(ring(600, 0))


# --- scikit-learn ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass():
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    unread = {"check_dataframe_column_names_consistency": "names of pandas' columns are not remembered"}
    results = checks.check_estimator(Small(max_steps=20), expected_failed_checks=unread, on_fail=None, on_skip=None)
    assert len(results) > 40
    assert not [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]


def test_it_works_in_a_pipeline_and_can_be_cloned():
    base, pipeline = pytest.importorskip("sklearn.base"), pytest.importorskip("sklearn.pipeline")
    scale = pytest.importorskip("sklearn.preprocessing").StandardScaler()
    model = pipeline.make_pipeline(scale, Small(false_alarms=0.1))
    assert base.clone(model)[-1].get_params() == model[-1].get_params()
    assert model.set_params(novelty__max_steps=5).fit(ring(300, 0)).predict(ring(9, 1)).shape == (9,)


def test_it_needs_no_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import numpy as np, rnd\n"
        "x = np.random.default_rng(0).normal(size=(60, 3))\n"
        "one = rnd.Novelty(features=8, hidden=8, max_steps=3, device='cpu')\n"
        "try: one.predict(x)\n"
        "except ValueError as error: print(error)\n"
        "print(one.fit(x).predict(x).shape)\n"
    )
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out == "this Novelty is not fitted yet: call fit(X) first\n(60,)\n"


# --- scores and false alarms -----------------------------------------------------------------------------------------


def test_what_it_has_not_seen_scores_lower(fitted):
    assert np.quantile(fitted.score_samples(ring(200, 1)), 0.1) > np.median(fitted.score_samples(ring(200, 1, 3.0)))
    assert np.mean(fitted.predict(ring(200, 1, 3.0)) == -1) > 0.8


def test_the_score_is_the_error_over_a_power_of_the_size(fitted):
    x = ring(7, 3)
    module = fitted._module.double()
    with torch.no_grad():
        inputs = module.whiten(torch.from_numpy(x).float()).double()
        target, predicted = module.target(inputs), module.predictor(inputs)
    module.target.float(), module.predictor.float()
    error, size = (target - predicted).square().mean(1), target.square().mean(1).clamp_max(fitted.max_size_)
    expected = -np.log((error / size**fitted.size_power).numpy())
    np.testing.assert_allclose(fitted.score_samples(x), expected, rtol=1e-6)
    np.testing.assert_array_equal(fitted.decision_function(x), fitted.score_samples(x) - fitted.offset_)


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_false_alarms_stay_within_the_stated_rate_over_200_splits(rate):
    """The mean over 200 splits of real fits, within two standard errors; benchmarks/novelty.py has it for real data."""
    data, shares = ring(1200, 5), []
    for seed in range(200):
        fit, held_out = np.split(np.random.default_rng(seed).permutation(data), [600])
        model = Small(false_alarms=rate, max_steps=4, features=4, hidden=8, calibration=0.4, random_state=seed)
        shares.append(np.mean(model.fit(fit).predict(held_out) == -1))
    assert rate * 0.8 < np.mean(shares) < rate + 2 * np.std(shares) / 200**0.5


def test_the_limit_of_split_conformal_by_hand():
    scores = np.arange(1.0, 20.0)  # 19 of them
    assert conformal_limit(scores, 0.05) == 19.0
    assert conformal_limit(scores, 0.2) == 16.0
    assert conformal_limit(scores[:-1], 0.05) == np.inf


def test_too_few_samples_for_the_rate_warn_and_never_alarm():
    with pytest.warns(UserWarning, match=r"needs 999 calibration samples, there are 10"):
        model = Small(false_alarms=0.001).fit(ring(50, 0))
    assert (model.predict(ring(50, 1, 9.0)) == 1).all()


def test_no_sample_is_trained_on_and_sets_the_threshold():
    model, seen = Small(max_steps=20, batch=8), []
    epoch = model._epoch
    model._epoch = lambda samples, order, *last: seen.append(samples[order]) or epoch(samples, order, *last)
    model.fit(ring(300, 0))
    trained, calibrated = ({tuple(row) for row in rows.tolist()} for rows in (torch.cat(seen), model._calibration))
    assert (len(trained), len(calibrated)) == (210, 60) and not trained & calibrated


# --- fitting ---------------------------------------------------------------------------------------------------------


def test_training_stops_early_and_keeps_the_best_predictor():
    model = Small(max_steps=5000, patience=2, lr=0.05).fit(ring(100, 0))
    assert model.n_steps_ < 5000


def test_partial_fit_makes_a_stream_familiar():
    model, new = Small(), partial(ring, radius=3.0)
    for seed in range(10):
        model.partial_fit(ring(100, seed))
    before = model.score_samples(new(200, 99)).mean() - model.score_samples(ring(200, 98)).mean()
    for seed in range(30):
        model.partial_fit(new(100, 100 + seed))
    after = model.score_samples(new(200, 99)).mean() - model.score_samples(ring(200, 98)).mean()
    assert before < -0.5 and after > before + 0.5
    assert np.mean(model.predict(new(200, 97)) == -1) < 0.2


@pytest.mark.parametrize(
    ("shape", "dtype", "kind"),
    [((28, 28), np.float32, "vector"), ((40, 50, 3), np.uint8, "image"), ((3, 36, 36), np.float32, "image")],
)
def test_images_of_any_size(shape, dtype, kind):
    random = np.random.default_rng(0)
    images = random.random((30, *shape))
    images = (images * 255).astype(dtype) if dtype == np.uint8 else images.astype(dtype)
    model = Small(max_steps=2, false_alarms=0.3).fit(images)
    assert model._module.image == (kind == "image")
    assert np.isfinite(model.score_samples(images[:3])).all()


def test_tensors_return_tensors_and_the_same_scores(fitted):
    x = ring(5, 1).astype(np.float32)
    scores = fitted.score_samples(torch.from_numpy(x))
    assert isinstance(scores, torch.Tensor) and isinstance(fitted.predict(torch.from_numpy(x)), torch.Tensor)
    np.testing.assert_array_equal(scores.numpy(), fitted.score_samples(x))
    with torch.inference_mode():
        Small(max_steps=2).fit(torch.from_numpy(ring(60, 1)))


def test_wrong_input_is_refused(fitted):
    for params in ({"false_alarms": 0}, {"hidden": 0}, {"validation": 0.5, "calibration": 0.5}):
        with pytest.raises(UserError, match="must be"):
            Small(**params).fit(ring(50, 0))
    with pytest.raises(UserError, match="nearest: patience"):
        Small().set_params(patienc=3)
    images = np.random.default_rng(0).integers(0, 256, (30, 4, 4), np.uint8)
    with pytest.raises(UserError, match="bytes and images of floats"):
        Small(max_steps=1, false_alarms=0.3).fit(images).predict(images / 255)
    with pytest.raises(ValueError, match="expecting 5 features"):
        fitted.predict(ring(5, 0)[:, :3])


# --- state -----------------------------------------------------------------------------------------------------------


def test_a_saved_detector_scores_and_continues_exactly(tmp_path):
    model = Small().fit(ring(300, 0))
    model.calibrate_episodes([ring(30, s) for s in range(60)])
    model.save(tmp_path / "one.safetensors")
    again = rnd.Novelty.load(tmp_path / "one.safetensors", device="cpu")
    x = ring(50, 9)
    np.testing.assert_array_equal(again.decision_function(x), model.decision_function(x))
    assert again.get_params() == model.get_params()
    assert again.episodes_.limit == model.episodes_.limit and again.monitor().step(x[0]) == model.monitor().step(x[0])
    for one in (model, again):
        one.partial_fit(ring(100, 1))
    np.testing.assert_array_equal(again.decision_function(x), model.decision_function(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), model.predict(x))


def test_a_file_of_something_else_is_refused(tmp_path, fitted):
    fitted.save(tmp_path / "one.safetensors")
    data = (tmp_path / "one.safetensors").read_bytes()
    (tmp_path / "two.safetensors").write_bytes(data.replace(b'hidden\\": 32', b'hidden\\": 99'))
    with pytest.raises(UserError, match=r"two\.safetensors"):
        rnd.Novelty.load(tmp_path / "two.safetensors")
    rnd.Bonus("rnd", __import__("gymnasium").spaces.Box(-1, 1, (3,))).save(tmp_path / "bonus.safetensors")
    with pytest.raises(UserError, match="not a detector saved by rnd"):
        rnd.Novelty.load(tmp_path / "bonus.safetensors")


# --- episodes --------------------------------------------------------------------------------------------------------


def walks(count: int, seed: int) -> list[np.ndarray]:
    """Scores that drift over an episode, of 20 to 40 steps, no two steps independent."""
    random = np.random.default_rng(seed)
    lengths = random.integers(20, 41, count)
    return [np.linspace(0, 5, n) + random.normal() + 0.3 * np.cumsum(random.normal(size=n)) for n in lengths]


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_whole_episodes_hold_the_rate(rate, varying):
    shares = []
    for seed in range(200):
        threshold = EpisodeThreshold.fit(walks(100, seed), rate, 3, varying)
        shares.append(np.mean([threshold.first_alarm(one) is not None for one in walks(50, 1000 + seed)]))
    assert rate * 0.6 < np.mean(shares) < rate + 2 * np.std(shares) / 200**0.5


def test_a_varying_threshold_sees_what_is_early_for_its_size():
    early = np.full(20, 4.5)
    found = [EpisodeThreshold.fit(walks(200, 0), 0.05, 1, varying).first_alarm(early) for varying in (False, True)]
    assert found == [None, 0]


def test_the_monitor_agrees_with_the_whole_episode(fitted):
    fitted.calibrate_episodes([ring(40, s) for s in range(60)], window=4)
    for radius in (1.0, 1.3, 3.0):
        rows, monitor = ring(50, 77, radius), fitted.monitor()
        first = next((t for t, row in enumerate(rows) if monitor.step(row)), None)
        assert first == fitted.episodes_.first_alarm(-fitted.score_samples(rows))
        monitor.reset()
        assert not monitor.alarm and monitor.steps == 0
    assert first is not None


def test_too_few_episodes_are_refused(fitted):
    with pytest.raises(UserError, match="needs 38 episodes, not 20"):
        fitted.calibrate_episodes([ring(10, s) for s in range(20)])
    with pytest.raises(UserError, match="calibrate_episodes"):
        Small(max_steps=2).fit(ring(60, 0)).monitor()


def test_means_over_a_window_by_hand():
    assert window_means(np.array([1.0, 3.0, 5.0, 7.0]), 2).tolist() == [1.0, 2.0, 4.0, 6.0]
