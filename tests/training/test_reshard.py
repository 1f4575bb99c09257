"""The state of a run split across another number of ranks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rnd import envs
from rnd.config import BonusOptions
from rnd.config.presets import small
from rnd.data.normalize import ReturnScaler
from rnd.device.generators import Generators
from rnd.distributed import Ranks
from rnd.foundation.errors import RunError
from rnd.models.policy.mlp import WidthOptions
from rnd.training.collector import SynchronousCollector
from rnd.training.state import reshard
from rnd.training.trainer import Trainer

N = 12


def trainer_of(num_envs: int = N, ranks: Ranks | None = None, **changes) -> Trainer:
    config = small("CartPole-v1")
    config = replace(
        config,
        env=replace(config.env, num_envs=num_envs),
        bonus_options=BonusOptions(features=8, hidden=8),
        rollout_steps=8,
        policy_options=WidthOptions(8),
        minibatches=2,
        device="cpu",
        **changes,
    )
    trainer = Trainer(config, envs.make(config))
    trainer.ranks = ranks or trainer.ranks
    return trainer


def trained(**changes) -> Trainer:
    trainer = trainer_of(**changes)
    trainer.start()
    training = trainer.train()
    for _ in range(4):
        next(training)
    return trainer


def own(state: dict) -> dict:
    return {
        name: part for name, part in state.items() if name in ("collector", "env", "generators") or "scaler" in name
    }


def equal(a, b) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return bool(torch.equal(a, b)) if isinstance(a, torch.Tensor) else np.array_equal(a, b)


@pytest.fixture(scope="module")
def saved():
    return trained().state_dict()


def split(parts: list[dict], world: int, **changes) -> list[dict]:
    return reshard(trainer_of(ranks=Ranks(0, world), **changes), parts)


@pytest.mark.parametrize("way", [(2, 1), (3, 2, 4, 1), (12, 1)])
def test_there_and_back_is_where_it_was(saved, way):
    parts = [own(saved)]
    for world in way:
        parts = split(parts, world)
        assert len(parts) == world
    assert parts[0]["generators"] is None
    assert equal(own(parts[0]) | {"generators": 0}, own(saved) | {"generators": 0})


def test_the_same_number_of_ranks_is_left_alone(saved):
    parts = [own(saved)]
    assert split(parts, 1) is parts


def test_every_rank_has_the_rows_of_its_environments():
    scaler = {"carry_N": torch.arange(6.0), "moments.mean": torch.tensor(3.0)}
    parts = ReturnScaler.reshard([scaler], 3)
    assert [part["carry_N"].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert all(part["moments.mean"] == 3 for part in parts)
    names = ("obs", "first", "age", "hidden")
    collector = {name: torch.arange(6)[:, None] for name in names} | {"history": torch.arange(18).view(3, 6)}
    second = SynchronousCollector.reshard([collector], 2)[1]
    assert second["history"].tolist() == [[3, 4, 5], [9, 10, 11], [15, 16, 17]]
    assert all(second[name].flatten().tolist() == [3, 4, 5] for name in names)


def test_an_entry_that_is_not_known_is_refused(saved):
    for name, extra in (("scaler", torch.zeros(N)), ("collector", torch.zeros(N)), ("env", np.zeros(N))):
        part = own(saved) | {name: saved[name] | {"surprise": extra}}
        with pytest.raises(RunError, match="surprise"):
            split([part], 2)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_run_of_two_ranks_continues_alone(overlap):
    """Statistics and networks as they were; generators that neither rank has used; no rollout of the old ranks."""
    saved = trained(overlap=overlap).state_dict()
    assert (saved["collector"].get("pending") is not None) == overlap
    halves = [half | {"generators": saved["generators"]} for half in split([own(saved)], 2, overlap=overlap)]
    assert "pending" not in halves[0]["collector"]
    two = saved | halves[0] | {"other_ranks": halves[1:]}
    trainer = trainer_of(overlap=overlap)
    draw = trainer.generators.acting.get_state()
    assert trainer.load_state_dict(two) is False
    assert trainer.iteration == 4
    assert equal(dict(trainer.policy.state_dict()), dict(saved["policy"]))
    assert equal(dict(trainer.scaler.state_dict()), dict(saved["scaler"]))
    assert not torch.equal(trainer.generators.acting.get_state(), draw)
    assert next(trainer.train())["iteration"] == 5
    trainer.collector.close()


def test_ranks_never_share_generators():
    seen = set()
    for rank in range(3):
        generators = Generators(1, rank, torch.device("cpu"))
        for iteration in (0, 7):
            generators.seed(iteration)
            if rank or iteration:
                ours = generators.acting, generators.learning
                seen |= {generator.initial_seed() % 2**32 for generator in ours}
    assert len(seen) == 10
