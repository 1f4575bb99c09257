"""The fast path: device work captured once as a CUDA graph and replayed, kernels compiled, arithmetic chosen.

On the CPU, and with `--no-fast`, nothing is captured or compiled and the same functions run plainly: there is one
implementation of the method, and this file only decides how it is launched.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from rnd.config import Config
from rnd.normalize import RunningMoments

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=nn.Module)


class Held(Protocol):
    """Something that is made of tensors."""

    def tensors(self) -> list[Tensor]: ...


H = TypeVar("H", bound=Held)

WARM_UP = 3
"""Plain calls before a capture: kernels are chosen, workspaces and optimiser state allocated."""


def uses_graphs(config: Config, device: torch.device) -> bool:
    return config.fast and device.type == "cuda"


class Replay:
    """A function without arguments that works on fixed tensors; from the fourth call on a CUDA graph.

    The function must do device work alone: no host synchronisation, no shapes that depend on values. Its kernels keep
    the priority and the multiprocessors of the stream on which they were captured.
    """

    def __init__(self, function: Callable[[], None], config: Config, device: torch.device):
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None
        self._plain_calls = 0 if uses_graphs(config, device) else None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        elif self._plain_calls is None:
            self.function()
        elif self._plain_calls < WARM_UP:
            self._plain_calls += 1
            self._on_side_stream()
        else:
            self._capture()

    def _on_side_stream(self) -> None:
        """Warm-up belongs where the capture will be."""
        stream = side_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.function()
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self) -> None:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side_stream(), capture_error_mode="thread_local"):
            self.function()
        self.graph = graph
        graph.replay()  # the capture itself computes nothing


def filed(first: H | None, new: H, config: Config, device: torch.device) -> H:
    """What a captured graph reads lies where the first call's tensors are: copy into them."""
    if first is None or not uses_graphs(config, device):
        return new
    copy_(first, new)
    return first


def copy_(mine: Held, new: Held) -> None:
    """Tensor by tensor, but for those that are the same memory."""
    pairs = [(a, b) for a, b in zip(mine.tensors(), new.tensors(), strict=True) if a.data_ptr() != b.data_ptr()]
    if pairs:
        torch._foreach_copy_([a for a, _ in pairs], [b for _, b in pairs], non_blocking=True)


def make_current(device: torch.device) -> None:
    """Streams and events without a name are this GPU's from now on, in this thread."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


def side_stream() -> torch.cuda.Stream:
    """The current stream, or another where that is the default: it cannot be captured."""
    current = torch.cuda.current_stream()
    return beside(current.device) if current == torch.cuda.default_stream() else current


@functools.cache
def beside(device: torch.device) -> torch.cuda.Stream:
    """Always the same stream: memory is kept stream by stream, and the next call finds what the last one left."""
    return torch.cuda.Stream(device)


class Mark:
    """A point in the device's work to wait for: asleep, so that the core is free for the emulator, or spinning, where
    microseconds count (the emulator leaves one core to the thread that acts)."""

    def __init__(self, device: torch.device, spin: bool = False):
        self._event = torch.cuda.Event(blocking=not spin) if device.type == "cuda" else None

    def set(self) -> None:
        """After all that was launched on this stream."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


def channels_last(module: M, device: torch.device) -> M:
    """Convolution weights in the memory order of the tensor cores."""
    if device.type == "cuda":
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


def compiled(function: F, config: Config, device: torch.device) -> F:
    """`function` with fused kernels where there is a GPU. Recurrent policies stay plain: their unrolled loop would
    take minutes to compile and is captured as a graph anyway."""
    if uses_graphs(config, device) and config.policy != "gru":
        return cast(F, torch.compile(function, dynamic=False))
    return function


def compile_sums(module: nn.Module, config: Config, device: torch.device) -> None:
    """Statistics of frames anywhere in a module read every byte once: the same sums to the bit."""
    for part in module.modules():
        if isinstance(part, RunningMoments):
            part.byte_sums = compiled(part.byte_sums, config, device)


def arithmetic(config: Config, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """bf16 autocast where it is asked for; TF32 is a global switch, set with the device."""
    if config.precision == "bf16" and device.type == "cuda":
        return torch.autocast("cuda", torch.bfloat16)
    return contextlib.nullcontext()
