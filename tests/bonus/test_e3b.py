"""E3B against numpy's inverse of the regularised covariance, in the trainer and in `rnd.Bonus`."""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from bonus_cases import CONTINUOUS, DISCRETE, MULTI, VECTOR, everything, started, transitions
from gymnasium import spaces

import rnd
from rnd import envs
from rnd.bonus.e3b import EpisodeEllipses, inverse_loss
from rnd.config.presets import preset
from rnd.training.trainer import Trainer

RIDGE = 0.1


def expected(features_TNk, first_TN, start_TNk=None):
    """phi^T C^-1 phi, with C from its definition."""
    steps, envs, k = features_TNk.shape
    found = np.zeros((steps, envs))
    for n in range(envs):
        covariance = RIDGE * np.eye(k)
        for t in range(steps):
            if first_TN[t, n]:
                covariance = RIDGE * np.eye(k)
                if start_TNk is not None:
                    covariance += np.outer(start_TNk[t, n], start_TNk[t, n])
            phi = features_TNk[t, n].astype(np.float64)
            found[t, n] = phi @ np.linalg.inv(covariance) @ phi
            covariance += np.outer(phi, phi)
    return found


def random_features(steps=60, envs=3, k=6, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(steps, envs, k)).astype(np.float32)
    return features, random.random((steps, envs)) < 0.1


@pytest.mark.parametrize("with_start", [False, True])
def test_the_bonus_is_that_of_the_inverse_covariance(with_start):
    features, first = random_features()
    start = random_features(seed=1)[0] if with_start else None
    ellipses = EpisodeEllipses(3, 6, RIDGE)
    parts = [slice(0, 17), slice(17, 18), slice(18, 60)]  # what one rollout leaves, the next one continues
    tensors = [torch.from_numpy(x) for x in (features, first, *([start] if with_start else []))]
    got = torch.cat([ellipses(*(x[part] for x in tensors)) for part in parts])
    np.testing.assert_allclose(got, expected(features, first, start), rtol=2e-4)
    assert torch.equal(ellipses.inverse_Nkk, ellipses.inverse_Nkk.mT)


def test_a_thousand_steps_of_one_episode_stay_exact_and_a_visit_lowers_the_bonus():
    features, _ = random_features(1000, 1, 16)
    ellipses = EpisodeEllipses(1, 16, RIDGE)
    got = ellipses(torch.from_numpy(features), torch.zeros(1000, 1, dtype=torch.bool))
    np.testing.assert_allclose(got, expected(features, np.zeros((1000, 1), bool)), rtol=1e-2)
    one = torch.from_numpy(features[:1]).repeat(4, 1, 1)
    again = EpisodeEllipses(1, 16, RIDGE)(one, torch.tensor([[False], [False], [False], [True]]))[:, 0]
    assert again[0] > again[1] > again[2]
    assert again[3] == again[0]


def test_ranks_split_the_ellipses():
    whole = torch.arange(4 * 2 * 2.0).view(4, 2, 2)
    two = EpisodeEllipses.reshard([{"inverse_Nkk": whole}], 2)
    assert [state["inverse_Nkk"].tolist() for state in two] == [whole[:2].tolist(), whole[2:].tolist()]
    assert torch.equal(EpisodeEllipses.reshard(two, 1)[0]["inverse_Nkk"], whole)


def test_the_inverse_model_is_scored_by_its_likelihood():
    output = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    taken = torch.tensor([[0, 1], [1, 3], [2, 2], [0, 0], [1, 1]])
    parts = [
        torch.nn.functional.cross_entropy(o, a, reduction="none")
        for o, a in zip(output.split((3, 4), 1), taken.T, strict=True)
    ]
    torch.testing.assert_close(inverse_loss(MULTI, output, taken), sum(parts))
    single = torch.nn.functional.cross_entropy(output[:, :5], taken[:, 1], reduction="none")
    torch.testing.assert_close(inverse_loss(DISCRETE, output[:, :5], taken[:, 1]), single)
    assert inverse_loss(CONTINUOUS, torch.zeros(1, 2), torch.tensor([[1.0, 3.0]])).tolist() == [5.0]


def test_transitions_across_an_end_do_not_train_the_encoder():
    bonus, moves = started("e3b", VECTOR), transitions(VECTOR, steps=6)
    done = torch.zeros(6, 3, dtype=torch.bool)
    done[2, 1] = done[4, 0] = True
    loss = bonus.loss(replace(moves, done=done), bonus.targets(moves), everything(moves), 1.0)
    assert torch.equal(loss, bonus.loss(moves, bonus.targets(moves), ~done, 1.0))
    assert not torch.equal(loss, bonus.loss(moves, bonus.targets(moves), everything(moves), 1.0))


def test_the_inverse_model_learns_the_action():
    """s_{t+1} - s_t is the action: the encoder must keep it."""
    bonus = started("e3b", VECTOR)
    random = torch.Generator().manual_seed(0)
    taken = torch.randint(0, 5, (1, 256), generator=random)
    before = torch.randn(256, 10, generator=random)
    after = before.clone()
    after[torch.arange(256), taken[0]] += 2
    moves = replace(transitions(VECTOR, steps=1, envs=256), frames=torch.stack([before, after]), actions=taken)
    optimizer = torch.optim.Adam(bonus.parameters(), lr=3e-3)
    losses = []
    for _ in range(150):
        loss = bonus.loss(moves, bonus.targets(moves), everything(moves), 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(np.log(5), rel=0.05)
    assert losses[-1] < 0.3


def small_run(bonus="e3b", iterations=4, **changes):
    config = preset("rnd/DeepSea-10")
    options = replace(config.bonus_options, features=8, hidden=16, random_steps=16)
    size = {"env": replace(config.env, num_envs=4), "rollout_steps": 16, "minibatches": 2, "device": "cpu"}
    return replace(config, bonus=bonus, bonus_options=options, frames=iterations * 64, **size | changes)


def test_a_run_resumes_to_the_bit_and_its_bonus_is_the_definition():
    config = small_run()
    with closing(envs.make(config)) as env, closing(envs.make(config)) as other:
        trainer = Trainer(config, env)
        list(trainer.random_start())
        trainer.start()
        rows, training = [], trainer.train()
        rows += [next(training), next(training)]
        saved = copy.deepcopy(trainer.state_dict())
        seen = []
        trainer.scaler.register_forward_hook(lambda _, given, result: seen.append(given[0].clone()))
        features = []
        embed = trainer.bonus.embed
        trainer._score = lambda moves: features.append((embed(moves), moves.done.clone())) or features[-1][0]
        # ellipses that start with what the last rollouts left
        inverse = trainer.episode_bonus.inverse_Nkk.double()
        rows += list(training)
        again = Trainer(config, other)
        again.load_state_dict(saved)
        assert list(again.train()) == rows[2:]
    phi, done = (torch.cat(x).numpy() for x in zip(*features, strict=True))
    covariance = np.linalg.inv(inverse.numpy())
    assert done.any()
    raw = torch.cat(seen).numpy()
    for n in range(4):
        for t in range(32):
            covariance[n] = covariance[n] if not done[t, n] else RIDGE * np.eye(8)
            assert raw[t, n] == pytest.approx(phi[t, n] @ np.linalg.inv(covariance[n]) @ phi[t, n], rel=1e-3, abs=1e-5)
            covariance[n] += np.outer(phi[t, n], phi[t, n])


# --- rnd.Bonus -------------------------------------------------------------------------------


def plugin(num_envs=3, **options):
    space, action_space = spaces.Box(-9, 9, (4,), np.float32), spaces.Discrete(2)
    sizes = {"features": 6, "hidden": 8, "device": "cpu"}
    return rnd.Bonus("e3b", space, num_envs=num_envs, action_space=action_space, **sizes | options)


def plugin_steps(steps=40, num_envs=3, seed=0):
    random = np.random.default_rng(seed)
    obs = random.normal(size=(2, steps, num_envs, 4)).astype(np.float32)
    return obs[0], obs[1], random.integers(2, size=(steps, num_envs)), random.random((steps, num_envs)) < 0.15


def test_episode_ends_reach_rnd_bonus():
    """Single steps, rollouts and numpy agree; where an episode begins, s_t is part of it."""
    bonus, (obs, next_obs, actions, done) = plugin(), plugin_steps()
    with torch.no_grad():
        before, after = (bonus.module._features(torch.from_numpy(x)).view(40, 3, 6).numpy() for x in (obs, next_obs))
    begins = np.concatenate([np.ones((1, 3), bool), done[:-1]])
    want = expected(after, begins, before)
    for t in range(40):
        bonus.observe(next_obs[t], obs[t], actions[t], done=done[t])
    np.testing.assert_allclose(torch.cat([steps.raw for steps in bonus._pending]), want, rtol=1e-3)
    whole = plugin()
    whole.observe(next_obs, obs, actions, done=done)
    np.testing.assert_allclose(whole._pending[0].raw, want, rtol=1e-3)
    assert np.isfinite(list(bonus.update().values())).all()


def test_steps_that_are_no_transitions_and_resets_begin_episodes():
    bonus, (obs, next_obs, actions, _) = plugin(), plugin_steps(6)
    never = np.zeros((6, 3), bool)
    valid = ~never
    valid[2, 1] = False
    bonus.observe(next_obs[:4], obs[:4], actions[:4], done=never[:4], valid=valid[:4])
    bonus.reset_episodes([True, False, False])
    bonus.observe(next_obs[4:], obs[4:], actions[4:], done=never[4:])
    with torch.no_grad():
        before, after = (bonus.module._features(torch.from_numpy(x)).view(6, 3, 6).numpy() for x in (obs, next_obs))
    begins = np.zeros((6, 3), bool)
    begins[0] = begins[3, 1] = begins[4, 0] = True
    want = expected(after, begins, before)
    got = torch.cat([steps.raw for steps in bonus._pending]).numpy()
    np.testing.assert_allclose(got[valid], want[valid], rtol=1e-3)
    assert got[2, 1] == 0


def test_rnd_bonus_saves_and_loads_its_episodes(tmp_path):
    bonus, (obs, next_obs, actions, done) = plugin(), plugin_steps()
    bonus.observe(next_obs[:20], obs[:20], actions[:20], done=done[:20])
    bonus.save(tmp_path / "e3b.safetensors")
    loaded = rnd.Bonus.load(tmp_path / "e3b.safetensors", device="cpu")
    rest = (next_obs[20:], obs[20:], actions[20:])
    bonus.freeze()
    frozen = bonus.observe(*rest, done=done[20:])
    assert np.array_equal(
        frozen, bonus.scaler.scale(loaded._scored(loaded.encoder(*rest, (20, 3)), done[20:]).raw).numpy()
    )
    bonus.freeze(False)
    loaded = rnd.Bonus.load(tmp_path / "e3b.safetensors", device="cpu")
    assert np.array_equal(bonus.observe(*rest, done=done[20:]), loaded.observe(*rest, done=done[20:]))
    assert bonus.update() == loaded.update()
    assert rnd.Bonus.load(tmp_path / "e3b.safetensors", device="cpu", num_envs=2).num_envs == 2
