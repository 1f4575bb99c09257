"""The floor of an optimiser step beside a count by hand, and a profile beside intervals whose sums are known."""

import io

import pytest
from rich.console import Console

from rnd.bench.kernels import KernelTime, Rates, floor_of, summary
from rnd.bench.learner import LearnerSpeed, profile_table
from rnd.config.presets import preset


def products(convolutions, layers) -> int:
    """Operations of a sample forwards and backwards: a layer's gradients cost as much as the layer, each. There is none
    of the images."""
    forwards = [2 * pixels * outputs * patch for pixels, outputs, patch in convolutions]
    forwards += [2 * inputs * outputs for inputs, outputs in layers]
    return 3 * sum(forwards) - forwards[0]


def test_operations_and_bytes_of_a_step():
    config = preset("montezuma")
    convolutions = (20 * 20, 32, 4 * 64), (9 * 9, 64, 32 * 16), (6 * 6, 64, 64 * 16)
    layers = [(36 * 64, 256), (256, 448), (448, 448), (448, 448), (448, 18), (448, 1), (448, 1)]
    policy = products(convolutions, layers)
    convolutions = (20 * 20, 32, 64), (9 * 9, 64, 32 * 16), (7 * 7, 64, 64 * 9)
    predictor = products(convolutions, [(49 * 64, 512), (512, 512), (512, 512)])
    floor = floor_of(config)
    assert config.keep == 0.25
    # the policy alone is counted without a bonus, where the intrinsic head has no gradient
    assert floor.operations == pytest.approx(4096 * (policy + predictor / 4), rel=3e-5)
    assert floor.milliseconds(Rates(floor.operations, 2 * floor.bytes)) == 1e3
    assert floor.milliseconds(Rates(2 * floor.operations, floor.bytes)) == 1e3


def test_the_name_of_a_kernel_is_text_and_no_markup():
    found = summary([("sum<float [4]>", 0.0, 10.0), ("copy [clone]", 2.0, 12.0)], steps=1)
    speed = LearnerSpeed("rnd", "cnn", 16, "tf32", True, 512, 1.0, 0.1, 0.05, 1e3, 0.0)
    console = Console(file=io.StringIO(), width=100)
    console.print(profile_table(speed, found))
    assert "sum<float [4]>" in console.file.getvalue() and "copy [clone]" in console.file.getvalue()


def test_a_long_name_is_cut_and_its_numbers_are_not():
    found = summary([("void at::native::" + "template<int, " * 30, 0.0, 1234.5)], steps=1)
    speed = LearnerSpeed("rnd", "cnn", 16, "tf32", True, 512, 1.0, 0.1, 0.05, 1e3, 0.0)
    console = Console(file=io.StringIO(), width=80)
    console.print(profile_table(speed, found))
    row = next(line for line in console.file.getvalue().splitlines() if "at::native" in line)
    assert "1.0" in row and "1234.5" in row and "…" in row


def test_gaps_and_kernels_that_run_beside_each_other():
    launched = [("a", 0.0, 10.0), ("b", 2.0, 12.0), ("c", 3.0, 4.0), ("a", 20.0, 30.0)]
    found = summary(launched, steps=2)
    assert (found.kernels, found.in_kernels, found.busy, found.gaps) == (2.0, 15.5, 11.0, 4.0)
    assert found.by_name == [KernelTime("a", 1.0, 10.0), KernelTime("b", 0.5, 5.0), KernelTime("c", 0.5, 0.5)]
