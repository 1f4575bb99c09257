"""The fast path on CUDA is the plain one: captured graphs and compiled kernels change the order of sums alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rnd.bench.synthetic import SyntheticAtari
from rnd.fast import WARM_UP, Replay, compiled, filed
from rnd.normalize import byte_sums
from rnd.presets import preset
from rnd.train import Trainer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BONUSES = ["rnd", "dynamics", "autoencoder", "count", "zero", "none"]
CHANGES = [*({"bonus": name} for name in BONUSES), {"policy": "gru"}]


def trainer_of(**changes) -> Trainer:
    config = preset("montezuma")
    config = replace(config, env=replace(config.env, num_envs=8), rollout_steps=16, precision="float32", **changes)
    config = replace(config, frames=4 * config.frames_per_rollout)
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    trainer.collector.start()
    return trainer


def rows_of(**changes) -> list[dict]:
    return list(trainer_of(**changes).train())


@cuda
@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: "-".join(changes.values()))
def test_graphs_and_compilation_equal_the_plain_path(changes):
    """From the last epoch of the first iteration on, graphs are replayed."""
    fast, plain = (rows_of(device="cuda", fast=flag, **changes) for flag in (True, False))
    for row, other in zip(fast, plain, strict=True):
        # The last digits go through Adam, and single samples cross the clip range: after six iterations two plain runs
        # differ by some per cent.
        rel, abs_ = (1e-4, 1e-4) if row["iteration"] == 1 else (1e-2, 1e-3)
        for name, value in other.items():
            if value is not None:
                assert row[name] == pytest.approx(value, rel=rel, abs=abs_), (name, row["iteration"])


@cuda
@pytest.mark.parametrize("bonus", BONUSES)
def test_the_captured_preparation_equals_the_plain_one(bonus):
    """Bonus, returns and statistics of rollout after rollout; from the fourth on a graph is replayed."""
    fast, plain = (trainer_of(device="cuda", fast=flag, bonus=bonus) for flag in (True, False))
    for _ in range(WARM_UP + 3):
        rollout = fast.collector.collect()
        rollout.rewards_ext_TN.normal_()
        fast.rollout = filed(fast.rollout, rollout, fast.config, fast.device)
        plain.rollout = rollout.clone()
        fast._prepare()
        plain._prepare()
        for mine, other in zip(flat(fast), flat(plain), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    assert fast._prepare.graph is not None


def flat(trainer: Trainer) -> list[torch.Tensor]:
    """All that the preparation leaves behind."""
    targets, bonus_targets, figures = trainer.prepared
    return [*targets, bonus_targets, figures, *trainer.bonus.buffers(), *trainer.scaler.buffers()]


@cuda
def test_compiled_sums_of_bytes_are_exact():
    config, device = preset("montezuma"), torch.device("cuda")
    for shape in ((64, 256, 84, 84), (3, 256, 84, 84), (1, 17, 84, 84)):
        frames = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
        for fast, exact in zip(compiled(byte_sums, config, device)(frames), whole_sums(frames), strict=True):
            assert torch.equal(fast, exact)


def test_sums_of_bytes_are_exact():
    frames = torch.randint(0, 256, (2, 256, 5, 5), dtype=torch.uint8)
    frames[0] = 255  # the largest block
    for fast, exact in zip(byte_sums(frames), whole_sums(frames), strict=True):
        assert torch.equal(fast, exact)


def whole_sums(bytes_KB: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values = bytes_KB.flatten(0, 1).long()
    return values.sum(0).double(), values.square().sum(0).double()


def test_what_a_graph_reads_stays_where_it_was(monkeypatch):
    trainer, first = trainer_of(device="cpu"), None
    place = None
    for capturing in (True, True, False):
        monkeypatch.setattr("rnd.fast.uses_graphs", lambda *_, capturing=capturing: capturing)
        new = trainer.collector.collect().clone()
        first = filed(first, new, trainer.config, trainer.device)
        for mine, other in zip(first.tensors(), new.tensors(), strict=True):
            assert torch.equal(mine, other)
        place = place or first.transitions.frames.data_ptr()
        assert (first.transitions.frames.data_ptr() == place) == capturing


def test_off_cuda_a_replay_is_the_function():
    calls = []
    replay = Replay(lambda: calls.append(1), preset("montezuma"), torch.device("cpu"))
    for _ in range(6):
        replay()
    assert len(calls) == 6
    assert compiled(whole_sums, preset("montezuma"), torch.device("cpu")) is whole_sums
