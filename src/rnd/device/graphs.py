"""How device work is launched: CUDA graphs, compiled kernels, precision.

On the CPU, and with `--no-fast`, nothing is captured or compiled and the same functions run as they are: there is one
implementation of the method, and this file only decides how it is launched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from rnd.config import Config
from rnd.device.devices import set_device

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=nn.Module)
P = ParamSpec("P")
R = TypeVar("R")

SWITCH_INTERVAL = 1e-4
"""Python's switch interval in seconds: how long a thread holds the interpreter while another waits. With the default of
5 ms the random agent waits several times per step, and took 19 s beside the compiler instead of 9."""
MAX_VARIANTS = 64
"""Variants of one compiled function. With PyTorch's own eight the ninth trainer of a notebook is not compiled."""
WARM_UP = 3
"""Plain calls before a capture: kernels are chosen, workspaces and optimiser state allocated."""


def uses_graphs(config: Config, device: torch.device) -> bool:
    return config.fast and device.type == "cuda"


class GraphedFunction(Generic[P, R]):
    """A function of tensors that is captured as a CUDA graph at its fourth call and replayed from then on.

    Arguments and result are tensors, or tuples, dicts and dataclasses of tensors. A graph reads the addresses it was
    captured with: the tensors of the capturing call become the static inputs, and those of later calls are copied into
    them unless they are the same memory. Every replay returns the same result tensors, overwritten. The function
    must not synchronise with the host, and no shape may depend on values. Its kernels keep the priority and the
    multiprocessors of the stream on which they were captured.
    """

    def __init__(self, function: Callable[P, R], config: Config, device: torch.device):
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._result: R | None = None
        self._warm_up_left = WARM_UP if uses_graphs(config, device) else None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._warm_up_left is None:
            return self.function(*args, **kwargs)
        assert not kwargs, "a graph's inputs are positional"
        if self.graph is not None:
            copy_tensors_(self._inputs, tensors_in(args))
            self.graph.replay()
        elif self._warm_up_left > 0:
            self._warm_up_left -= 1
            return self._on_capture_stream(*args)
        else:
            self._capture(*args)
        return cast(R, self._result)

    def _on_capture_stream(self, *args: Any) -> R:
        """Warm-up calls run where the capture will be."""
        stream = capture_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = cast(Callable[..., R], self.function)(*args)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _capture(self, *args: Any) -> None:
        torch.cuda.synchronize()
        self._inputs, self.graph = tensors_in(args), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=capture_stream(), capture_error_mode="thread_local"):
            self._result = cast(Callable[..., R], self.function)(*args)
        self.graph.replay()  # the capture itself computes nothing


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of nested tuples, dicts and dataclasses, in order. Lists hold plain data (a rollout's episodes)."""
    if isinstance(value, Tensor):
        return [value]
    if dataclasses.is_dataclass(value):
        value = vars(value)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


def copy_tensors_(mine: list[Tensor], new: list[Tensor]) -> None:
    """Copy tensor by tensor, but for those that are the same memory."""
    pairs = [(a, b) for a, b in zip(mine, new, strict=True) if a.data_ptr() != b.data_ptr()]
    if pairs:
        torch._foreach_copy_([a for a, _ in pairs], [b for _, b in pairs], non_blocking=True)


def capture_stream() -> torch.cuda.Stream:
    """The current stream, or another where that is the default stream, which cannot be captured."""
    current = torch.cuda.current_stream()
    return _side_stream(current.device) if current == torch.cuda.default_stream() else current


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One per device: PyTorch caches memory per stream, so that the next call reuses what the last one freed."""
    return torch.cuda.Stream(device)


class Beside:
    """A context in which kernels are launched beside those of the current stream, on the same multiprocessors, until
    `join`. Where nothing is captured everything runs in one order."""

    def __init__(self, config: Config, device: torch.device):
        self._used = uses_graphs(config, device)
        self._stack = contextlib.ExitStack()
        self._stream: torch.cuda.Stream | None = None

    def __enter__(self) -> None:
        if self._used:
            current = torch.cuda.current_stream()
            self._stream = stream_beside(current)
            self._stream.wait_stream(current)
            self._stack.enter_context(torch.cuda.stream(self._stream))

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def join(self) -> None:
        """What the current stream is given from here on waits for what was launched beside it."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


BESIDE: dict[torch.cuda.Stream, torch.cuda.Stream] = {}
"""A stream, and another on the same multiprocessors (`rnd.device.partition` adds those of its parts)."""


def stream_beside(stream: torch.cuda.Stream) -> torch.cuda.Stream:
    """Another stream with the priority and the multiprocessors of this one; the same at every call."""
    if stream not in BESIDE:
        BESIDE[stream] = torch.cuda.Stream(stream.device, priority=stream.priority)
    return BESIDE[stream]


class DeviceEvent:
    """A point in the device's work that the host waits for. The host sleeps, so that the core is free for the emulator.
    With `spin` it spins, where microseconds count: the emulator leaves one core to the acting thread."""

    def __init__(self, device: torch.device, spin: bool = False):
        self._event = torch.cuda.Event(blocking=not spin) if device.type == "cuda" else None

    def record(self) -> None:
        """After everything that was launched on this stream."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


def channels_last(module: M) -> M:
    """Convolution weights in the memory order of the tensor cores, and of the fastest kernels of a CPU."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


def compiled(function: F, config: Config, device: torch.device) -> F:
    """`function` with fused kernels where there is a GPU. The compiler, whose import takes seconds, is imported at the
    first call."""
    if not uses_graphs(config, device):
        return function

    @functools.cache
    def compiled_once() -> Callable[..., Any]:
        prepare_compiler()
        return torch.compile(function, dynamic=False)

    return cast(F, lambda *args: compiled_once()(*args))


def prepare_compiler() -> None:
    """Settings of PyTorch's compiler."""
    from torch._dynamo import config as compiler

    compiler.recompile_limit = max(compiler.recompile_limit, MAX_VARIANTS)
    # `--precision float32` was chosen, and what PyTorch's own code calls is not the user's. Other warnings are shown.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\._inductor\.")


def in_background(function: Callable[[], None], device: torch.device) -> Future[None]:
    """Run in a thread that does not keep the process alive; waiting for the result raises its error."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    done: Future[None] = Future()

    def work() -> None:
        set_device(device)
        try:
            function()
            done.set_result(None)
        except BaseException as error:  # raised again where the result is read
            done.set_exception(error)

    threading.Thread(target=work, name="compiler", daemon=True).start()
    return done


def autocast(config: Config, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """bf16 autocast where it is asked for; TF32 is a global switch, set with the device."""
    if config.precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()
