"""Two ranks against one process with the same data."""

from dataclasses import replace

import pytest
import torch

import rank_programs
from rank_programs import N, T, learn_once, one_step
from rnd import envs
from rnd.config.presets import preset
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.foundation.errors import UserError
from rnd.training.trainer import Trainer


@pytest.fixture(scope="module")
def alone():
    """One process with all environments: its first rollout, and what it learns from it."""
    trainer = Trainer(one_step(N), envs.make(one_step(N)))
    trainer.start()
    first = trainer.collector.buffer.frames[-1].clone()
    rollout = trainer.collector.collect().clone()
    # Ranks keep different numbers of samples: 3 of 4 environments' worth here, 1 of 4 there.
    draws = torch.rand(1, T, N, generator=torch.Generator().manual_seed(0))
    draws[:, :, : N // 2] *= 0.66
    kept = (draws < 0.5).sum((0, 1))
    assert kept[: N // 2].sum() != kept[N // 2 :].sum()
    fresh = Trainer(one_step(N), envs.make(one_step(N)))
    result = learn_once(fresh, rollout, draws)
    return {"rollout": rollout.state_dict(), "draws": draws, "first": first, "result": result}


@pytest.fixture(scope="module")
def both(alone, tmp_path_factory):
    """The results of the two ranks."""
    given = {"rollout": alone["rollout"], "draws": alone["draws"]}
    return rank_programs.run(given, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("what", ["observations", "returns", "gradients", "weights"])
def test_two_ranks_learn_what_one_process_learns(alone, both, what):
    for rank in both:
        for ours, theirs in zip(rank["same_data"][what], alone["result"][what], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_metrics_are_those_of_all_ranks(alone, both):
    expected = alone["result"]["learned"]
    for rank in both:
        assert rank["same_data"]["learned"] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_weights_and_statistics_stay_the_same_to_the_bit(both):
    first, second = (rank["fifty"]["seen"] for rank in both)
    assert first == second
    assert len(set(first)) == 50


def test_ranks_draw_differently_and_begin_with_the_environments_of_one_process(alone, both):
    assert not torch.equal(both[0]["fifty"]["noise"], both[1]["fifty"]["noise"])
    assert torch.equal(torch.cat([rank["fifty"]["first"] for rank in both]), alone["first"])


def test_rank_0_alone_counts_the_episodes_of_all(both):
    assert both[0]["fifty"]["episodes"] > 0 and both[1]["fifty"]["episodes"] == 0


def test_a_loss_that_is_not_finite_on_one_rank_stops_all_before_any_step(both):
    for rank in both:
        assert "not finite" in rank["bad"]["raised"] and rank["bad"]["untouched"]


def test_visits_are_counted_over_all_ranks(both):
    for rank in both:
        assert rank["counts"].tolist() == [[1, 3]]


def test_collective_operations(both):
    for rank, results in enumerate(both):
        found = results["collectives"]
        assert found["all_max"] == [1, 0]
        assert found["scatter"] == "ab"[rank]
        assert found["on_rank0"] == 10
        assert found["problem"] == ("no such thing", rank > 0)
    gathered = [rank["collectives"]["gather"] for rank in both]
    assert [found["rank"] for found in gathered[0]] == [0, 1] and gathered[1] == []


def test_a_single_process_returns_its_arguments():
    tensor = torch.rand(3)
    before = tensor.clone()
    SINGLE_PROCESS.all_mean_([tensor])
    assert torch.equal(tensor, before) and SINGLE_PROCESS.all_gather(tensor, 0) is tensor
    assert SINGLE_PROCESS.gather(1) == [1] and SINGLE_PROCESS.scatter([3]) == 3
    assert SINGLE_PROCESS.on_rank0(lambda: 2) == 2
    config = preset("montezuma")
    assert SINGLE_PROCESS.config_of_new_run(config) == config == SINGLE_PROCESS.config_of_resumed_run(config)


def test_sizes_count_all_ranks():
    alone, eight = preset("montezuma"), Ranks(3, 8).config_of_new_run(preset("montezuma"))
    assert eight.env.num_envs == 128 and eight.all_envs == 1_024 and eight.env.first == 384
    assert eight.frames_per_rollout == 8 * alone.frames_per_rollout
    assert eight.keep == 32 / 1_024
    again = Ranks(1, 2).config_of_resumed_run(eight)
    assert (again.env.num_envs, again.all_envs, again.env.first, again.keep) == (512, 1_024, 512, 32 / 1_024)


def test_environments_that_cannot_be_split_are_refused():
    with pytest.raises(UserError, match=r"cannot be split across 3 ranks; nearest: .*2"):
        Ranks(0, 3).config_of_resumed_run(preset("montezuma"))
    with pytest.raises(UserError, match="torchrun --standalone --nproc-per-node 4"):
        SINGLE_PROCESS.config_of_new_run(replace(preset("montezuma"), ranks=4))
