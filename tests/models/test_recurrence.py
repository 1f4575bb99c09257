"""The recurrent kernels against the cell called step by step: states, and the gradients of everything trained."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from rnd.models.policy.gru import ReleaseCell, step_by_step
from rnd.models.policy.recurrence import SIZE, fused


@pytest.mark.skipif(not fused(SIZE), reason="needs a GPU with thread block clusters")
@pytest.mark.parametrize("steps, envs", [(128, 32), (128, 256), (5, 3), (1, 1)])
def test_kernels_equal_the_cell_step_by_step(steps, envs):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    cell = ReleaseCell(SIZE).cuda()
    for bias in (cell.gates.bias, cell.candidate.bias):
        torch.nn.init.normal_(bias)
    x = torch.randn(steps, envs, SIZE, device="cuda", requires_grad=True)
    hidden, towards = torch.randn(envs, SIZE, device="cuda"), torch.randn(steps, envs, SIZE, device="cuda")
    first = torch.rand(steps, envs, device="cuda") < 0.05
    results = []
    for unroll in (cell.unroll, lambda *args: step_by_step(cell, *args)):
        states = unroll(x, hidden, first)
        results.append([states, *torch.autograd.grad((states * towards).sum(), [x, *cell.parameters()])])
    for ours, plain in zip(*results, strict=True):
        scale = plain.abs().max()
        torch.testing.assert_close(ours / scale, plain / scale, rtol=0, atol=3e-6)


def test_other_sizes_are_called_step_by_step():
    assert not fused(SIZE // 2)


def test_without_a_gpu_no_compiler_is_imported():
    """It takes seconds."""
    program = "import rnd.models.policy.gru, rnd.training.trainer, sys; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
