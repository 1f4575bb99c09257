"""Adam's step and norms on a CUDA device, over many tensors at once (many_tensors.cu).

Elsewhere `rnd.training.adam` uses PyTorch's own kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

THREADS, CHUNK = 256, 4096
"""THREADS and CHUNK of many_tensors.cu."""
MOST = 64
"""Tensors of a launch: their addresses are its parameters, for which there are 4 kB."""

Sizes = tuple[tuple[int, bool], ...]
"""Values of every tensor, and whether all lists hold it where four values can be read at once."""


def usable(tensors: Sequence[Tensor]) -> bool:
    """Whether the kernels take these tensors."""
    return torch.version.cuda is not None and all(x.is_cuda and x.dtype == torch.float32 for x in tensors)


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """Norms of parts of the tensors, in a fixed order; their norm is that of the whole."""
    results = []
    for (some,) in portions(tensors):
        sizes = sizes_of(some)
        results.append(torch.empty(blocks_of(sizes), device=some[0].device))
        launch("norms", {"const float* values": some}, sizes, {}, [results[-1]])
    return results[0] if len(results) == 1 else torch.cat(results)


def adam_(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    averages: Sequence[Tensor],
    squares: Sequence[Tensor],
    steps: Sequence[Tensor],
    settings: dict[str, float],
    skip: Tensor,
    scale: Tensor,
) -> None:
    """A step with the gradients times `scale`, unless `skip`. `settings`: LR, BETA1, BETA2 and EPS."""
    for parts in portions(parameters, gradients, averages, squares, steps):
        sizes = sizes_of(*parts[:4])
        names = "parameters", "gradients", "averages", "squares", "steps"
        lists = {f"float* {name}": part for name, part in zip(names, parts, strict=True)}
        launch("count", lists, sizes, settings, [skip])
        launch("take", lists, sizes, settings, [skip, scale])


def portions(*lists: Sequence[Tensor]) -> Iterator[tuple[Sequence[Tensor], ...]]:
    """The lists, a launch at a time."""
    for start in range(0, len(lists[0]), MOST):
        yield tuple(x[start : start + MOST] for x in lists)


def sizes_of(*lists: Sequence[Tensor]) -> Sizes:
    return tuple((x[0].numel(), all(y.data_ptr() % 16 == 0 for y in x)) for x in zip(*lists, strict=True))


def blocks_of(sizes: Sizes) -> int:
    return sum(-(-size // CHUNK) for size, _ in sizes)


def launch(
    name: str, lists: dict[str, Sequence[Tensor]], sizes: Sizes, settings: dict[str, float], rest: list[Tensor]
) -> None:
    """`lists`: the tensors by their declaration in the kernel."""
    device = rest[0].device
    function = kernel(name, tuple(lists), sizes, tuple(settings.items()), device.index)
    blocks, threads = (1, len(sizes)) if name == "count" else (blocks_of(sizes), THREADS)
    tensors = [x for values in lists.values() for x in values]
    with torch.cuda.device(device):
        function(grid=(blocks, 1, 1), block=(threads, 1, 1), args=[*tensors, *rest])


@functools.cache
def kernel(
    name: str, declarations: tuple[str, ...], sizes: Sizes, settings: tuple[tuple[str, float], ...], device: int
) -> Any:
    """Compiled for tensors of these sizes by the NVRTC that comes with PyTorch."""
    source = Path(__file__).with_suffix(".cu").read_text()
    return torch.cuda._compile_kernel(definitions(declarations, sizes, dict(settings)) + source, name)


def definitions(declarations: Sequence[str], sizes: Sizes, settings: dict[str, float]) -> str:
    """What many_tensors.cu expects before it."""
    names = [declaration.split()[-1] for declaration in declarations]
    tensors = range(len(sizes))
    cases, first = [], 0
    for i, (size, aligned) in enumerate(sizes):
        blocks = blocks_of(((size, aligned),))
        found = " ".join(f"{name} = {name}{i};" for name in names)
        cases.append(
            f"if (block < {first + blocks}) {{ {found} size = {size}; aligned = {int(aligned)}; block -= {first}; }}"
        )
        first += blocks
    find = [
        "int block = blockIdx.x, size;",
        "bool aligned;",
        *(f"{declaration};" for declaration in declarations),
        " else ".join(cases),
        "const int start = block * CHUNK;",
        "const bool whole = aligned && start + CHUNK <= size",
    ]
    defined: dict[str, Any] = {
        "LISTS": ", ".join(f"{declaration}{i}" for declaration in declarations for i in tensors),
        "FIND": " ".join(find),
        **settings,
    }
    if "steps" in names:
        defined |= {"ADAM": "", "ALL_STEPS": ", ".join(f"steps{i}" for i in tensors)}
    return "".join(f"#define {name} {value}\n" for name, value in defined.items())
