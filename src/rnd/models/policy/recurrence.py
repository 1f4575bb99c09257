"""The release's recurrent cell over the steps of a rollout: one kernel per direction (recurrence.cu) where a GPU has
thread block clusters.

Legend: T steps, N environments, H hidden size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SIZE, CLUSTER, ENVS, THREADS = 256, 8, 4, 256
"""H, CLUSTER, E and THREADS of recurrence.cu."""


def fused(hidden_size: int) -> bool:
    """Whether the GPU here can run the kernels; elsewhere the cell is called step by step."""
    return hidden_size == SIZE and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


@functools.cache
def kernel(name: str, capability: tuple[int, int]) -> Callable[..., None]:
    """Compiled in a second by the NVRTC that comes with PyTorch."""
    source = Path(__file__).with_name("recurrence.cu").read_text()
    compiled: Callable[..., None] = torch.cuda._compile_kernel(source, name)
    return compiled


def launch(name: str, tensors: list[Tensor], steps: int, envs: int) -> None:
    grid = (-(-envs // ENVS) * CLUSTER, 1, 1)
    function = kernel(name, torch.cuda.get_device_capability(tensors[0].device))
    function(grid=grid, block=(THREADS, 1, 1), args=[*tensors, steps, envs])


@torch.library.custom_op("rnd::recurrence", mutates_args=())
def recurrence(
    gates_x: Tensor, candidate_x: Tensor, hidden_NH: Tensor, keep_TN: Tensor, gate_weight: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, mixing gates, reset gates and candidates, [T, N, H] each.

    From the inputs' parts of the gates [T, N, 2 H] and candidates [T, N, H], the state before the first step, 0 in
    `keep` where an episode starts, and the weights of the state [2 H, H] and [H, H]. Gradients flow from the states.
    """
    inputs = [x.contiguous() for x in (gates_x, candidate_x, hidden_NH, keep_TN, gate_weight, weight)]
    results = [torch.empty_like(inputs[1]) for _ in range(4)]
    launch("recurrence_forward", inputs + results, *keep_TN.shape)
    states, mix, reset, candidate = results
    return states, mix, reset, candidate


@torch.library.custom_op("rnd::recurrence_gradients", mutates_args=())
def recurrence_gradients(
    grad_states: Tensor,
    states: Tensor,
    hidden_NH: Tensor,
    keep_TN: Tensor,
    mix: Tensor,
    reset: Tensor,
    candidate: Tensor,
    gate_weight: Tensor,
    weight: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients of the inputs' parts of gates [T, N, 2 H] and candidates [T, N, H]."""
    inputs = (grad_states, states, hidden_NH, keep_TN, mix, reset, candidate, gate_weight, weight)
    grad_gates, grad_candidate = states.new_empty(*keep_TN.shape, 2 * SIZE), torch.empty_like(states)
    tensors = [*(x.contiguous() for x in inputs), grad_gates, grad_candidate]
    launch("recurrence_backward", tensors, *keep_TN.shape)
    return grad_gates, grad_candidate


@recurrence.register_fake
def _(gates_x: Tensor, candidate_x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    return tuple(candidate_x.new_empty(candidate_x.shape) for _ in range(4))


@recurrence_gradients.register_fake
def _(grad_states: Tensor, states: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    return states.new_empty(*states.shape[:2], 2 * SIZE), states.new_empty(states.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    _, _, hidden_NH, keep_TN, gate_weight, weight = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(hidden_NH, keep_TN, gate_weight, weight, *output)


def _backward(ctx: Any, grad_states: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
    hidden_NH, keep_TN, gate_weight, weight, states, mix, reset, candidate = ctx.saved_tensors
    saved = states, hidden_NH, keep_TN, mix, reset, candidate, gate_weight, weight
    grad_gates, grad_candidate = recurrence_gradients(grad_states, *saved)
    # the gradients of the weights are sums over all steps: one product each
    before = torch.cat([hidden_NH[None], states[:-1]]) * keep_TN.unsqueeze(-1)
    grad_gate_weight = grad_gates.flatten(0, 1).T @ before.flatten(0, 1)
    grad_weight = grad_candidate.flatten(0, 1).T @ (reset * before).flatten(0, 1)
    return grad_gates, grad_candidate, None, None, grad_gate_weight, grad_weight


recurrence.register_autograd(_backward, setup_context=_save)
