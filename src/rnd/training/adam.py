"""Adam (Kingma and Ba, 2015) on PyTorch's fused kernel.

The kernel and its results are those of `torch.optim.Adam(fused=True)`. That class imports PyTorch's compiler when it is
first used, which takes more than a second of every run that is started, and checks its settings at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Moments = dict[str, Tensor]
"""What Adam keeps for one parameter: `step`, `exp_avg` and `exp_avg_sq`, as in PyTorch."""


class Group(NamedTuple):
    """Parameters that take their steps in one launch of the kernel."""

    parameters: Sequence[Tensor]
    lr: float
    skip: Tensor | None = None
    """A number on the device: where it is 1, no step is taken."""


class Adam:
    """Takes no step for parameters without a gradient."""

    def __init__(self, groups: Sequence[Group], betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        self.groups, self.betas, self.eps = groups, betas, eps
        self.parameters = [p for group in groups for p in group.parameters]
        self.moments: dict[Tensor, Moments] = {}

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for parameters, lr, skip in self.groups:
            given = [p for p in parameters if p.grad is not None]
            if not given:
                continue
            moments = [self.moments.get(p) or self.moments.setdefault(p, start(p)) for p in given]
            steps, averages, squares = ([m[name] for m in moments] for name in ("step", "exp_avg", "exp_avg_sq"))
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                given,
                [p.grad for p in given if p.grad is not None],
                averages,
                squares,
                [],  # the largest squares, of a variant
                steps,
                lr=lr,
                beta1=self.betas[0],
                beta2=self.betas[1],
                weight_decay=0.0,
                eps=self.eps,
                amsgrad=False,
                maximize=False,
                found_inf=skip,
            )
            if skip is not None:  # a step that was not taken does not count
                torch._foreach_sub_(steps, [skip] * len(steps))

    def state_dict(self) -> dict[str, Moments]:
        """Moments and step counts, by the number of the parameter. The tensors are those of the optimiser."""
        numbered = ((str(i), self.moments.get(p)) for i, p in enumerate(self.parameters))
        return {number: dict(moments) for number, moments in numbered if moments is not None}

    def load_state_dict(self, state: dict[str, Moments]) -> None:
        self.moments = {self.parameters[int(i)]: loaded(self.parameters[int(i)], m) for i, m in state.items()}


def start(parameter: Tensor) -> Moments:
    """What a parameter begins with."""
    zeros = [torch.zeros_like(parameter, memory_format=torch.preserve_format) for _ in range(2)]
    step = torch.zeros((), dtype=torch.float32, device=parameter.device)
    return {"step": step, "exp_avg": zeros[0], "exp_avg_sq": zeros[1]}


def loaded(parameter: Tensor, moments: Moments) -> Moments:
    """Copies in the memory order of the parameter: the kernel reads both element by element."""
    own = start(parameter)
    for name, value in own.items():
        if moments[name].shape != value.shape:
            raise ValueError(f"{name} has the shape {tuple(moments[name].shape)} instead of {tuple(value.shape)}")
        value.copy_(moments[name])
    return own
