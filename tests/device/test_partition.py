"""Two parts of a GPU: who gets which multiprocessors, and the limit that cuBLAS gets."""

from __future__ import annotations

import contextlib
import threading
from itertools import product

import pytest
import torch

from rnd.device import partition
from rnd.device.partition import ALL, LibraryError, Resource, SMPartition

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def resource(multiprocessors: int) -> Resource:
    return Resource(multiprocessors=multiprocessors)


@pytest.mark.parametrize(
    ("groups", "rest", "share", "acting", "learning"),
    [
        (15, 12, 3 / 8, 48, 84),  # H200
        (13, 4, 3 / 8, 40, 68),  # A100
        (16, 0, 3 / 8, 48, 80),  # RTX 4090
        (2, 6, 3 / 8, 8, 14),
        (15, 12, 1 / 100, 8, 124),
    ],
)
def test_parts_are_whole_groups_and_the_rest_is_for_learning(groups, rest, share, acting, learning):
    small, large = partition._share([resource(8) for _ in range(groups)], resource(rest), share)
    assert [sum(x.multiprocessors for x in part) for part in (small, large)] == [acting, learning]
    assert all(x.multiprocessors == 8 for x in (*small, large[0]))


@pytest.mark.parametrize(("groups", "rest", "share"), [(1, 4, 3 / 8), (0, 6, 3 / 8), (4, 0, 1.0)])
def test_a_gpu_that_is_too_small_has_no_parts(groups, rest, share):
    with pytest.raises(LibraryError):
        partition._share([resource(8) for _ in range(groups)], resource(rest), share)


class Library:
    """Stands in for cuBLAS; records the limit of each handle."""

    def __init__(self):
        self.limits = []

    def cublasSetSmCountTarget(self, handle, count):
        self.limits.append((handle.value, count.value))
        return 0


class Stream:
    def wait_stream(self, other):
        pass


def test_cublas_has_the_limit_of_a_part_while_it_is_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_blas_handle", threading.get_ident)
    library, here = Library(), threading.get_ident()
    part = SMPartition(Stream(), 48, library)
    with part.use():
        assert library.limits == [(here, 48)]
    assert library.limits == [(here, 48), (here, ALL)]
    with pytest.raises(KeyError), part.use():
        raise KeyError
    assert library.limits[2:] == [(here, 48), (here, ALL)]
    with SMPartition(Stream()).use():
        assert len(library.limits) == 4


@cuda
@pytest.mark.parametrize("share", [1 / 4, 3 / 8, 1 / 2])
def test_products_of_any_size_run_on_a_part(share, monkeypatch):
    """Some kernels that cuBLAS chooses for all multiprocessors cannot be launched on fewer: on an H200, in TF32, that
    of the weight gradient of 512 x 512 weights and 4,096 samples."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    sizes = [(m, *kn) for m, kn in product((64, 512, 4096, 16384), ((3136, 256), (256, 448), (512, 512), (448, 18)))]
    for part, dtype in product(partition._split(torch.device("cuda"), share), (torch.float32, torch.bfloat16)):
        for rows, inputs, outputs in sizes:
            x = torch.randn(rows, inputs, device="cuda", dtype=dtype, requires_grad=True)
            layer = torch.nn.Linear(inputs, outputs, device="cuda", dtype=dtype)
            with part.use():
                layer(x).sum().backward()
                (x.detach() @ x.detach().T[:, :outputs]).sum()
    torch.cuda.synchronize()


@cuda
def test_the_backward_pass_has_the_limit_too():
    """Its products run on a thread of their own unless they are kept."""
    threads = []
    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: threads.append(threading.get_ident()))
    with partition._split(torch.device("cuda"), 3 / 8)[1].use():
        y.sum().backward()
    assert threads == [threading.get_ident()]


@cuda
def test_parts_have_multiprocessors_of_their_own():
    """The smaller part takes longer for the same product, on its stream and in a graph that was captured on it."""
    acting, learning = partition._split(torch.device("cuda"), 1 / 4)
    x = torch.randn(4096, 4096, device="cuda")
    seconds = {}
    for name, part in (("acting", acting), ("learning", learning)):
        with part.use():
            x @ x
            part.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=part.stream):
                x @ x
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        begun.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        seconds[name] = begun.elapsed_time(ended)
    assert acting.multiprocessors < learning.multiprocessors
    assert seconds["acting"] > 1.5 * seconds["learning"]
