"""Parts of a run dealt to other numbers of ranks: every environment's rows stay together, in order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rnd import envs
from rnd.config import BonusConfig
from rnd.distributed import Ranks
from rnd.presets import small
from rnd.redistribute import deal
from rnd.train import Trainer

N = 12
PART = ("scaler", "collector", "env", "generators")


def trainer_of(game: str, num_envs: int = N, **changes) -> Trainer:
    config = small(game)
    config = replace(
        config,
        env=replace(config.env, num_envs=num_envs),
        bonus_options=BonusConfig(features=8, hidden=8),
        rollout_steps=8,
        policy_width=8,
        minibatches=2,
        device="cpu",
        **changes,
    )
    return Trainer(config, envs.make(config))


def trained(game: str, **changes) -> Trainer:
    trainer = trainer_of(game, **changes)
    trainer.collector.start()
    training = trainer.train()
    for _ in range(4):
        next(training)
    return trainer


def own(state: dict) -> dict:
    return {name: state[name] for name in PART}


def equal(a, b) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return bool(torch.equal(a, b)) if isinstance(a, torch.Tensor) else np.array_equal(a, b)


@pytest.fixture(scope="module", params=["CartPole-v1", "rnd/NoisyTV", "MiniGrid-MultiRoom-N2-S4-v0"])
def state(request):
    return request.param, trained(request.param).state_dict()


@pytest.mark.parametrize("way", [(2, 1), (3, 2, 4, 1), (12, 1)])
def test_there_and_back_is_where_it_was(state, way):
    _, saved = state
    parts = [own(saved)]
    for world in way:
        parts = deal(parts, world)
        assert len(parts) == world
    assert parts[0].pop("generators") is None
    assert equal(parts[0], {name: own(saved)[name] for name in PART if name != "generators"})


def test_the_same_number_is_left_alone(state):
    part = own(state[1])
    assert deal([part], 1)[0] is part


@pytest.mark.parametrize("overlap", [False, True])
def test_a_run_of_two_ranks_goes_on_alone(overlap):
    """Statistics and networks as they were; generators that neither rank has used."""
    saved = trained("CartPole-v1", overlap=overlap).state_dict()
    halves = deal([own(saved)], 2)
    halves = [half | {"generators": saved["generators"]} for half in halves]
    two = saved | halves[0] | {"other_ranks": halves[1:]}
    trainer = trainer_of("CartPole-v1", overlap=overlap)
    draw = trainer.generators["acting"].get_state()
    assert trainer.load_state_dict(two) is False
    assert trainer.iteration == 4
    assert equal(dict(trainer.policy.state_dict()), dict(saved["policy"]))
    assert equal(dict(trainer.scaler.state_dict()), dict(saved["scaler"]))
    assert not torch.equal(trainer.generators["acting"].get_state(), draw)
    assert next(trainer.train())["iteration"] == 5


def test_ranks_never_share_generators():
    seen = set()
    for rank in range(3):
        for iteration in (0, 7):
            trainer = trainer_of("CartPole-v1", 4)
            trainer.ranks, trainer.iteration = Ranks(rank, 3), iteration
            trainer.seed_draws()
            if rank or iteration:
                seen |= {generator.initial_seed() % 2**32 for generator in trainer.generators.values()}
    assert len(seen) == 10
