"""The fast path on CUDA is the plain one: captured graphs and compiled kernels change the order of sums alone."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import pytest
import torch

from rnd.bench.synthetic import SyntheticAtari
from rnd.config.components import BONUSES
from rnd.config.presets import preset
from rnd.data.normalize import byte_sums
from rnd.data.transitions import Rollout
from rnd.device import graphs
from rnd.device.graphs import WARM_UP, GraphedFunction, compiled, copy_tensors_, tensors_in
from rnd.training.trainer import Trainer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CHANGES = [
    *({"bonus": name} for name in BONUSES),
    *({"policy": "gru"}, {"bonus": "snd-v", "policy": "gru"}, {"shuffle": True}),
]
"""With the GRU the update is captured, but not compiled."""


def trainer_of(precision: str = "float32", **changes) -> Trainer:
    config = preset("montezuma")
    config = replace(config, env=replace(config.env, num_envs=8), rollout_steps=16, precision=precision, **changes)
    config = replace(config, frames=4 * config.frames_per_rollout)
    trainer = Trainer(config, SyntheticAtari(config.env.num_envs))
    trainer.start()
    return trainer


def rows_of(**changes) -> list[dict]:
    return list(trainer_of(**changes).train())


@cuda
@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: "-".join(map(str, changes.values())))
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


@pytest.mark.parametrize(
    ("message", "category", "module", "shown"),
    [
        ("TensorFloat32 tensor cores for float32 matrix multiplication", UserWarning, "torch._inductor.compile_fx", 0),
        ("`check` is deprecated", FutureWarning, "torch._inductor.lowering", 0),
        ("`check` is deprecated", FutureWarning, "users.program", 1),
        ("not enough multiprocessors", UserWarning, "torch._inductor.utils", 1),
    ],
)
def test_of_the_compilers_warnings_those_that_concern_the_user_are_shown(message, category, module, shown):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graphs.prepare_compiler()
        warnings.warn_explicit(message, category, "file.py", 1, module=module)
    assert len(caught) == shown


@cuda
@pytest.mark.parametrize("policy", ["cnn", "gru"])
@pytest.mark.parametrize("fast", [True, False])
def test_16_bit_operands_train_as_32_bit_ones(policy, fast):
    """The losses of the first update, which no step has separated yet beyond their rounding."""
    rounded, exact = (
        rows_of(precision=precision, device="cuda", policy=policy, fast=fast)[0] for precision in ("tf32", "float32")
    )
    for name in ("value_ext_loss", "value_int_loss", "entropy", "bonus_loss", "grad_norm", "bonus_raw", "return_int"):
        assert rounded[name] == pytest.approx(exact[name], rel=0.03, abs=1e-4), name


@cuda
@pytest.mark.parametrize("bonus", [*BONUSES])
def test_the_captured_preparation_equals_the_plain_one(bonus):
    """Bonus, returns and statistics of rollout after rollout; from the fourth on a graph is replayed."""
    fast, plain = (trainer_of(device="cuda", fast=flag, bonus=bonus) for flag in (True, False))
    for number in range(WARM_UP + 4):
        rollout = fast.collector.collect()
        rollout.rewards_ext_TN.normal_()
        other = rollout.clone()
        # Two memories in turn: what a graph reads is copied to where it was captured.
        mine, theirs = everything(fast, rollout if number % 2 else other), everything(plain, other)
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert fast._prepare.graph is not None


def everything(trainer: Trainer, rollout: Rollout) -> list[torch.Tensor]:
    """All that the preparation returns and advances."""
    return [*tensors_in(trainer._prepare(rollout)), *trainer.bonus.buffers(), *trainer.scaler.buffers()]


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


def test_tensors_are_found_in_order_and_copied_in_place():
    """Tuples, dicts and dataclasses, but not lists."""
    mine, new = trainer_of(device="cpu").collector.collect().clone(), trainer_of(device="cpu").collector.collect()
    new.rewards_ext_TN.fill_(7.0)
    nested = {"a": (mine, 3, "text"), "b": (torch.zeros(2), None), "c": [torch.zeros(3)]}
    found = tensors_in(nested)
    assert len(found) == len(tensors_in(mine)) + 1 == 13
    assert found[0] is mine.transitions.frames and found[-1] is nested["b"][0]
    places = [x.data_ptr() for x in found]
    copy_tensors_(tensors_in(nested), tensors_in({"a": (new, 4, ""), "b": (torch.ones(2), None)}))
    assert [x.data_ptr() for x in tensors_in(nested)] == places
    assert all(torch.equal(a, b) for a, b in zip(tensors_in(mine), tensors_in(new), strict=True))
    assert nested["b"][0].tolist() == [1, 1]


class EagerGraph:
    """Stands in for a CUDA graph: replays by calling the function on the static inputs, in place."""

    def __init__(self, function: GraphedFunction):
        self.function = function

    def replay(self) -> None:
        x, y = self.function._inputs
        copy_tensors_(tensors_in(self.function._result), tensors_in(self.function.function(x, {"y": y})))


def test_a_graph_gets_its_arguments_and_returns_its_results(monkeypatch):
    """With a stand-in for CUDA: the fourth call captures; later arguments are copied in, results stay in place."""
    graphed = GraphedFunction(lambda x, more: {"sum": x + more["y"]}, preset("montezuma"), torch.device("cuda"))

    def capture(*args):
        graphed._inputs, graphed._result, graphed.graph = tensors_in(args), graphed.function(*args), EagerGraph(graphed)

    monkeypatch.setattr(graphed, "_on_capture_stream", graphed.function)
    monkeypatch.setattr(graphed, "_capture", capture)
    first = None
    for number in range(WARM_UP + 4):
        assert (graphed.graph is not None) == (number > WARM_UP)
        result = graphed(torch.tensor(float(number)), {"y": torch.tensor(0.5)})["sum"]
        assert float(result) == number + 0.5
        if number == WARM_UP:
            first = result
    assert result is first


def test_off_cuda_a_graphed_function_is_the_function():
    calls = []
    graphed = GraphedFunction(lambda *args: calls.append(args), preset("montezuma"), torch.device("cpu"))
    for _ in range(6):
        graphed(1, 2)
    assert calls == [(1, 2)] * 6 and graphed.graph is None
    assert compiled(whole_sums, preset("montezuma"), torch.device("cpu")) is whole_sums


def test_more_trainers_than_the_compilers_own_limit_are_compiled(monkeypatch):
    """Without a GPU: the compiler traces as there, and a backend counts what it is given."""
    variants = []

    def backend(module, _inputs):
        variants.append(module)
        return module.forward

    def twice(values):
        return 2 * values

    monkeypatch.setattr(graphs, "uses_graphs", lambda *_: True)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    for size in range(1, 13):
        fast = compiled(twice, preset("montezuma"), torch.device("cpu"))
        assert torch.equal(fast(torch.ones(size)), 2 * torch.ones(size))
    assert len(variants) == 12
