"""One launch over many tensors: Adam's step and norms against PyTorch's.

Without a GPU the kernels run on the host (host_cuda.hpp), with one thread per thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rnd.device import many_tensors
from rnd.device.many_tensors import CHUNK, MOST
from rnd.training.adam import Adam, Group, norms

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
SIZES = (1, 3, 448, CHUNK - 1, CHUNK, CHUNK + 4, 2 * CHUNK + 2, *([300_000] if ON_GPU else []))
COUNTS = [1, 1 + MOST // len(SIZES)] if ON_GPU else [1]
COMPILER = shutil.which("c++") or shutil.which("g++")


def tensors(seed: int, count: int = 1) -> list[Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    made = [torch.randn(size, generator=generator, device=DEVICE) for size in SIZES * count]
    made[4] = torch.randn(CHUNK + 1, generator=generator, device=DEVICE)[1:]  # not where four values are read at once
    return [*made, torch.randn(8, 4, 3, 3, generator=generator, device=DEVICE).to(memory_format=torch.channels_last)]


@pytest.fixture
def kernels(monkeypatch, tmp_path_factory):
    """The kernels, on the host where there is no GPU."""
    if ON_GPU:
        return
    if COMPILER is None:
        pytest.skip("needs a C++ compiler or a GPU")
    folder = tmp_path_factory.getbasetemp() / "host_kernels"
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(many_tensors, "usable", lambda tensors: True)
    monkeypatch.setattr(many_tensors, "kernel", functools.partial(host_kernel, folder))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())


def host_kernel(folder: Path, name: str, declarations, sizes, settings, device):
    """Takes what a kernel of `torch.cuda` takes. Compiled once per source."""
    here, source = Path(__file__).parent, Path(many_tensors.__file__).with_suffix(".cu").read_text()
    rest = {"norms": ["float"], "count": ["const float"], "take": ["const float"] * 2}[name]
    types = [d.rsplit("*", 1)[0] for d in declarations for _ in sizes] + rest
    values = ", ".join(f"({kind}*)all[{i}]" for i, kind in enumerate(types))
    text = f"""#include "{here / "host_cuda.hpp"}"
{many_tensors.definitions(declarations, sizes, dict(settings))}{source}
extern "C" void host(int blocks, int threads, void** all) {{ run(blocks, threads, [=] {{ {name}({values}); }}); }}
"""
    library = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-ffp-contract=off"]
        command = [COMPILER, *flags, "-x", "c++", "-", "-o", str(library)]
        subprocess.run(command, input=text, text=True, check=True, capture_output=True)
    host = ctypes.CDLL(str(library)).host

    def launched(grid, block, args):
        host(grid[0], block[0], (ctypes.c_void_p * len(args))(*(x.data_ptr() for x in args)))

    return launched


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("count", COUNTS)
def test_steps_are_those_of_pytorch(count):
    """Within the last bits, over ten steps; also where several launches are needed."""
    ours, theirs = tensors(0, count), [x.clone().requires_grad_() for x in tensors(0, count)]
    skip = torch.zeros((), device=DEVICE)
    adam, reference = Adam([Group(ours, 1e-3, skip)]), torch.optim.Adam(theirs, lr=1e-3, fused=True)
    for step in range(10):
        for mine, other, gradient in zip(ours, theirs, tensors(1 + step, count), strict=True):
            mine.grad, other.grad = gradient, gradient.clone()
        adam.step()
        reference.step()
    for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(mine, other.detach(), rtol=1e-6, atol=1e-7)
        moments = reference.state_dict()["state"][i]
        for name, value in adam.state_dict()[f"{i}"].items():
            atol = 1e-7 if name == "exp_avg" else 1e-9  # averages of both signs cancel
            torch.testing.assert_close(value, moments[name], rtol=1e-6, atol=atol)
    before = [x.clone() for x in ours]
    skip.fill_(1.0)
    adam.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, before, strict=True))
    assert all(float(m["step"]) == 10.0 for m in adam.state_dict().values())


@pytest.mark.usefixtures("kernels")
def test_gradients_are_scaled():
    scaled, plain = tensors(0), tensors(0)
    for mine, other, gradient in zip(scaled, plain, tensors(1), strict=True):
        mine.grad, other.grad = gradient, gradient * 0.25
    Adam([Group(scaled, 1e-3)]).step(torch.tensor(0.25, device=DEVICE))
    Adam([Group(plain, 1e-3)]).step()
    assert all(torch.equal(a, b) for a, b in zip(scaled, plain, strict=True))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("count", COUNTS)
def test_the_norm_of_the_norms_is_that_of_the_whole(count):
    made = tensors(3, count)
    whole = torch.linalg.vector_norm(torch.cat([x.double().flatten() for x in made]))
    torch.testing.assert_close(torch.linalg.vector_norm(norms(made)).double(), whole, rtol=1e-6, atol=0)
    made[-1][0, 0, 0, 0] = torch.nan
    assert not torch.isfinite(torch.linalg.vector_norm(norms(made)))


def test_every_block_has_one_tensor():
    """The numbers of the blocks in the definitions, without a GPU."""
    sizes = ((3, True), (CHUNK, True), (2 * CHUNK + 1, False))
    text = many_tensors.definitions(["const float* values"], sizes, {})
    assert "#define LISTS const float* values0, const float* values1, const float* values2\n" in text
    assert many_tensors.blocks_of(sizes) == 5
    for first, stop, i in ((0, 1, 0), (1, 2, 1), (2, 5, 2)):
        found = f"if (block < {stop}) {{ values = values{i}; size = {sizes[i][0]}; aligned = {int(sizes[i][1])};"
        assert f"{found} block -= {first}; }}" in text
    assert "ADAM" not in text


def test_a_cpu_uses_the_kernels_of_pytorch():
    assert not many_tensors.usable([torch.zeros(2)])
