"""The bonuses that came after the paper, against a few independent lines of numpy."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from bonus_cases import OBSERVATIONS, VECTOR, everything, started, transitions
from gymnasium import spaces

from rnd import envs
from rnd.bonus.drnd import drnd_bonus, random_groups
from rnd.bonus.snd import augment, contrastive_loss, partners, uniform, vicreg_loss
from rnd.bonus.visits import EpisodeVisits
from rnd.config.presets import preset
from rnd.data.transitions import Transitions
from rnd.training.trainer import Trainer


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def draws(count, seed=0):
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


# --- SND -----------------------------------------------------------------------------------


def test_vicreg_is_the_one_of_its_paper():
    one, two = numbers(20, 6, seed=1) * 0.5, numbers(20, 6, seed=2) * 0.5
    expected = ((one - two) ** 2).numpy().mean()
    for z in (one.double().numpy(), two.double().numpy()):
        c = np.cov(z.T)
        expected += np.maximum(0, 1 - np.sqrt(z.var(0, ddof=1) + 1e-4)).mean()
        expected += (np.square(c).sum() - np.square(np.diag(c)).sum()) / 6 / 25
    got = vicreg_loss(one, two, torch.full((20,), 1 / 20))
    assert float(got) == pytest.approx(expected, rel=1e-5)
    padded = [torch.cat([x, 1e3 * numbers(5, 6, seed=9)]) for x in (one, two)]
    assert float(vicreg_loss(*padded, torch.tensor([1 / 20] * 20 + [0.0] * 5))) == pytest.approx(float(got), rel=1e-4)


def test_vicreg_of_collapsed_features_is_their_missing_spread():
    same = torch.ones(8, 4)
    assert float(vicreg_loss(same, same, torch.full((8,), 1 / 8))) == pytest.approx(2 * (1 - 0.01), rel=1e-5)


def test_the_contrastive_loss_by_hand():
    """Distances are means over the features: 0 and 1 are what the pairs shall have."""
    view = torch.zeros(2, 4)
    same = torch.tensor([[0.0] * 4, [1.0] * 4])
    other = torch.tensor([[1.0] * 4, [2.0] * 4])
    assert contrastive_loss(view, same, other).tolist() == [0.0, (1 + 9) / 2]


def test_partners_are_others_that_have_weight():
    draw, weight = draws(50), (torch.arange(50) % 3 > 0).float()
    other = partners(draw, weight)
    has = weight > 0
    assert bool((weight[other] > 0).all())
    assert sorted(other[has].tolist()) == has.nonzero().flatten().tolist(), "each is a partner once"
    assert bool((other != torch.arange(50)).all())
    assert not torch.equal(other, partners(draws(50, seed=1), weight))


def test_hashed_numbers_are_uniform_and_independent():
    draw = draws(200)
    place = torch.arange(500, dtype=torch.int32)[None]
    x = uniform(draw, place, 0)
    assert x.shape == (200, 500) and float(x.min()) >= 0 and float(x.max()) < 1
    histogram = torch.histc(x, 20, 0, 1)
    assert float((histogram - 5000).abs().max()) < 6 * 5000**0.5
    for other in (uniform(draw, place, 1), x.roll(1, 0), x.roll(1, 1)):
        assert abs(float(torch.corrcoef(torch.stack([x.flatten(), other.flatten()]))[0, 1])) < 0.02
    assert torch.equal(x[:7], uniform(draw[:7], place, 0)), "no number depends on another sample"


def test_views_have_noise_and_pictures_have_tiles():
    vectors = augment(torch.zeros(300, 10), draws(300), 0, noise=0.2, masked=0.1)
    assert 0.19 < float(vectors.abs().max()) <= 0.2
    assert float(vectors.std()) == pytest.approx(0.2 / 3**0.5, rel=0.05)
    images = augment(torch.full((300, 1, 84, 84), 3.0), draws(300), 1, noise=0.0, masked=0.1)
    hidden = (images == 0).float().flatten(1).mean(1)
    assert set(images.unique().tolist()) == {0.0, 3.0}
    assert 0.4 < float((hidden > 0).float().mean()) < 0.6, "every second one"
    assert float(hidden[hidden > 0].mean()) == pytest.approx(0.1, abs=0.02)
    one, two = (augment(torch.zeros(9, 10), draws(9), view, 0.2, 0.1) for view in range(2))
    assert not torch.equal(one, two)


@pytest.mark.parametrize("name", ["snd-v", "snd-vic"])
def test_the_predictors_error_does_not_train_the_target(name):
    bonus, moves = started(name, VECTOR), transitions(VECTOR, steps=6)
    loss = bonus.loss(moves, bonus.targets(moves), everything(moves), 1.0)
    loss.backward()
    together = [p.grad.clone() for p in bonus.target.parameters()]
    bonus.zero_grad()
    bonus.target_loss(moves.pick(torch.arange(18)), torch.full((18,), 1 / 18)).backward()
    for parameter, grad in zip(bonus.target.parameters(), together, strict=True):
        torch.testing.assert_close(parameter.grad, grad)
    assert all(p.grad is None for p in bonus.predictor.parameters())


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_snd_v_compares_two_views_of_each_state(observation):
    """View by view, in numpy: the two of a state, and the second with that of another state."""
    bonus, moves = started("snd-v", observation), transitions(observation, steps=4)
    picked, weight, draw = moves.pick(torch.arange(12)), torch.full((12,), 1 / 12), moves.draw.flatten()
    with torch.no_grad():
        one, two = (bonus.target(bonus.view(bonus.newest(picked), draw, n)).double().numpy() for n in range(2))
        got = float(bonus.target_loss(picked, weight))
    near, far = (np.square(one - x).mean(1) for x in (two, two[partners(draw, weight).numpy()]))
    assert got == pytest.approx((np.square(near) + np.square(1 - far)).mean() / 2, rel=1e-4) and near.min() > 0


def test_snd_v_learns_to_tell_states_apart():
    """Its target begins with distances far from 0 and 1."""
    bonus, moves = started("snd-v", VECTOR), transitions(VECTOR, steps=8)
    optimizer = torch.optim.Adam(bonus.target.parameters(), lr=1e-3)
    picked, weight = moves.pick(torch.arange(24)), torch.full((24,), 1 / 24)
    before = float(bonus.target_loss(picked, weight).detach())
    for _ in range(60):
        optimizer.zero_grad()
        bonus.target_loss(picked, weight).backward()
        optimizer.step()
    assert float(bonus.target_loss(picked, weight).detach()) < before / 3


# --- DRND ----------------------------------------------------------------------------------


def test_the_bonus_of_drnd_by_hand():
    """Two targets with the features 1 and 3: mean 2, variance 1. A prediction of 2.1 is one of 1 / 0.41 visits."""
    mean, square = torch.full((2, 2), 2.0), torch.full((2, 2), 5.0)
    got = drnd_bonus(torch.tensor([[2.1, 1.9], [9.0, 2.0]]), mean, square, alpha=0.9)
    assert float(got[0]) == pytest.approx(0.9 * 2 * 0.1**2 + 0.1 * (0.41**0.5 + 0.39**0.5) / 2, rel=1e-4)
    assert float(got[1]) == pytest.approx(0.9 * 49 + 0.1 * (1 + 0) / 2, rel=1e-4), "1/n is at most 1"


def test_the_pseudo_count_of_drnd_falls_with_the_visits():
    """The best prediction after n draws of a target is their mean."""
    features, found = numbers(10, 1, 4000), []
    for n in (1, 3, 10, 30, 100):
        drawn = torch.randint(10, (n, 4000), generator=torch.Generator().manual_seed(n))
        best = features[:, 0].gather(0, drawn).mean(0)[None]
        found.append(float(drnd_bonus(best, features.mean(0), features.square().mean(0), alpha=0.0)))
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] / 2


@pytest.mark.parametrize("kept", [0, 1, 7, 10, 64])
def test_samples_are_split_among_the_targets(kept):
    """Every kept sample once, in groups whose sizes differ by one at most, whatever the padding."""
    weight = (torch.arange(64) < kept).float()[torch.randperm(64, generator=torch.Generator().manual_seed(1))]
    places, used = random_groups(draws(64), weight, 10)
    assert sorted(places[used].tolist()) == weight.nonzero().flatten().tolist()
    assert int(used.sum(1).max() - used.sum(1).min()) <= 1
    other, _ = random_groups(draws(64, seed=2), weight, 10)
    assert kept < 10 or not torch.equal(places[used], other[used])


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_drnd_reads_the_moments_of_all_its_targets(observation):
    bonus, moves = started("drnd", observation), transitions(observation)
    obs = bonus.newest(moves)
    with torch.no_grad():
        features = torch.stack([target(obs) for target in bonus.target])
        expected = drnd_bonus(bonus.predictor(obs), features.mean(0), features.square().mean(0), 0.9).view(4, 3)
    torch.testing.assert_close(bonus.score(moves), expected, rtol=1e-4, atol=1e-4)


def test_drnd_learns_the_mean_of_its_targets():
    bonus, moves = started("drnd", VECTOR), transitions(VECTOR, steps=4)
    assert len(bonus.target) == 10
    obs = bonus.newest(moves)
    with torch.no_grad():
        features = torch.stack([target(obs) for target in bonus.target])
    optimizer = torch.optim.Adam(bonus.predictor.parameters(), lr=1e-3)
    for step in range(400):
        optimizer.zero_grad()
        drawn = replace(moves, draw=draws(12, seed=step).view(4, 3))
        bonus.loss(drawn, bonus.targets(drawn), everything(moves), 1.0).backward()
        optimizer.step()
    error = (bonus.predictor(obs) - features.mean(0)).square().mean().detach()
    assert float(error) < 0.1 * float(features.var(0).mean())


# --- NovelD --------------------------------------------------------------------------------


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_noveld_is_the_rise_of_rnds_novelty(observation):
    noveld, rnd = started("noveld", observation), started("rnd", observation)
    moves = transitions(observation, steps=5)
    before = Transitions(moves.newest[:-1].repeat(2, *[1] * (moves.newest.dim() - 1)), moves.age, moves.actions, 1)
    there = rnd.score(moves).sqrt()
    here = rnd.score(replace(before, frames=torch.cat([moves.newest[:1], moves.newest[:-1]]))).sqrt()
    torch.testing.assert_close(noveld.score(moves), (there - 0.5 * here).clamp_min(0), rtol=1e-4, atol=1e-5)
    seen = torch.rand(5, 3, generator=torch.Generator().manual_seed(3)) < 0.5
    restricted = noveld.score(replace(moves, first_visit=~seen))
    assert bool((restricted[seen] == 0).all())
    assert torch.equal(restricted[~seen], noveld.score(moves)[~seen])


def python_first_visits(states, first):
    """With a set for every environment."""
    envs = states.shape[1]
    sets, found = [{int(states[0, n])} for n in range(envs)], np.zeros(first.shape, bool)
    for t in range(len(first)):
        for n in range(envs):
            if first[t, n]:
                sets[n] = set()
            found[t, n] = int(states[t + 1, n]) not in sets[n]
            sets[n].add(int(states[t + 1, n]))
    return found


@pytest.mark.parametrize("split", [(60,), (1, 7, 20, 32), (30, 30)])
def test_first_visits_are_those_of_a_set(split):
    """In one rollout or in many, with the state saved and loaded in between."""
    random = np.random.default_rng(0)
    states, first = random.integers(0, 9, (61, 4)), random.random((60, 4)) < 0.1
    images = torch.from_numpy(states).to(torch.uint8)[..., None, None].expand(-1, -1, 3, 5).contiguous()
    visits, found, start = EpisodeVisits(4, 100, torch.device("cpu")), [], 0
    for steps in split:
        part = visits.update(images[start : start + steps + 1], torch.from_numpy(first[start : start + steps]))
        found.append(part)
        start += steps
        saved, visits = visits.state_dict(), EpisodeVisits(4, 100, torch.device("cpu"))
        visits.load_state_dict(saved)
    assert np.array_equal(torch.cat(found).numpy(), python_first_visits(states, first))


def test_visits_are_forgotten_after_the_memorys_length():
    visits = EpisodeVisits(1, 3, torch.device("cpu"))
    states = torch.tensor([0.0, 1.0, 2.0, 3.0])[:, None, None]
    no = torch.zeros(3, 1, dtype=torch.bool)
    assert visits.update(states, no).all()
    assert visits.update(states[[3, 1, 0, 2]], no).flatten().tolist() == [False, True, False]


def test_as_many_steps_are_remembered_however_they_come():
    """A rollout begins with the observation with which the one before ended."""
    for steps in (1, 2, 5):
        visits = EpisodeVisits(1, 10, torch.device("cpu"))
        states = torch.cat([torch.arange(11.0), torch.tensor([1.0, 2.0, 20, 3.0])])[:, None, None]
        parts = [states[t : t + steps + 1] for t in range(0, len(states) - 1, steps)]
        found = [visits.update(part, torch.zeros(len(part) - 1, 1, dtype=torch.bool)) for part in parts]
        # 1 and 2 are ten steps back when they come again
        assert torch.cat(found).flatten().tolist()[:12] == [True] * 10 + [False] * 2, steps


class Ring(gymnasium.Env):
    """Five steps around three places, so that places come back within an episode and in the next."""

    observation_space, action_space = spaces.Box(0, 2, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps % 3, np.float32), 0.0, self.steps == 5, False, {}


def test_first_visits_of_a_rollout_end_with_the_episode():
    config = config_of("noveld", "test_after_the_paper:Ring")
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        trainer.start()
        rollouts = [trainer.collector.collect(last=i == 3).clone() for i in range(4)]
    seen = torch.cat([rollout.transitions.first_visit for rollout in rollouts])
    once = [True, True, False, False, True]  # places 1, 2, 0, 1, and 0 of the next episode
    assert seen.T.tolist() == [[once[t % 5] for t in range(32)]] * 4


def config_of(name, env_id="rnd/DeepSea-4", **changes):
    config = preset(env_id)
    config = replace(config, bonus=name, env=replace(config.env, num_envs=4), rollout_steps=8, device="cpu", **changes)
    return replace(config, frames=10 * 32)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_trainer_gives_noveld_its_first_visits(overlap):
    """DeepSea's cells are rows: within an episode every visit is the first, and the first cell of the next too."""
    config = config_of("noveld", overlap=overlap)
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        trainer.start()
        rollout = trainer.collector.collect()
        assert rollout.transitions.first_visit.all()
        assert rollout.clone().transitions.first_visit.all()
        trainer.collector.close()
    with closing(envs.make(replace(config, env=replace(config.env, id="rnd/NoisyTV")))) as env:
        trainer = Trainer(replace(config, env=replace(config.env, id="rnd/NoisyTV")), env)
        trainer.start()
        seen = [trainer.collector.collect(last=i == 2).transitions.first_visit.clone() for i in range(3)]
        assert 0 < float(torch.cat(seen).float().mean()) < 1
        trainer.collector.close()


def test_other_bonuses_have_no_visits():
    config = config_of("rnd")
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        trainer.start()
        assert trainer.collector.visits is None
        assert trainer.collector.collect().transitions.first_visit is None
        assert not {"visits", "episode"} & trainer.collector.state_dict().keys()


def test_visits_are_resharded_with_their_environments():
    config = config_of("noveld")
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        trainer.start()
        trainer.collector.collect()
        state = trainer.collector.state_dict()
        halves = trainer.collector.reshard([state], 2)
        assert [half["visits"].shape for half in halves] == [(4500, 2), (4500, 2)]
        assert torch.equal(torch.cat([half["visits"] for half in halves], 1), state["visits"])
        assert torch.equal(torch.cat([half["episode"] for half in halves]), state["episode"])
