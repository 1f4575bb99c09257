"""Files of tensors: the same bytes as the safetensors library writes."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch

from rnd.checkpoint.tensors import NAMES, tensor_bytes

TENSORS = {f"state/ä{i}": torch.arange(14).to(dtype).reshape(7, 2) for i, dtype in enumerate(NAMES)} | {
    "scalar": torch.tensor(3.0),
    "empty": torch.zeros(0, 3, dtype=torch.float64),
    "a name": torch.rand(5),
    'quoted "name"\n': torch.rand(3, 2),
    "expanded": torch.tensor(2.0).expand(1),
    "part": torch.arange(9.0)[3:7],
    "not contiguous": torch.rand(4, 3).T,
}


@pytest.mark.parametrize("metadata", [None, {"card": '{"text": "é\\n"}'}])
def test_the_bytes_are_those_of_the_library(metadata):
    contiguous = {name: tensor.contiguous() for name, tensor in TENSORS.items()}
    assert tensor_bytes(TENSORS, metadata) == safetensors.torch.save(contiguous, metadata)


def test_the_library_reads_them():
    found = safetensors.torch.load(tensor_bytes(TENSORS))
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn])
def test_rarer_types_are_written_too(dtype):
    """A bonus of the user's own may have any that the library knows."""
    given = {"rare": torch.ones(3, 2).to(dtype), "plain": torch.arange(4)}
    found = safetensors.torch.load(tensor_bytes(given, {"card": "{}"}))
    assert {name: tensor.dtype for name, tensor in found.items()} == {"rare": dtype, "plain": torch.int64}
    assert torch.equal(found["rare"].to(torch.complex128), given["rare"].to(torch.complex128))


def test_no_tensors():
    assert tensor_bytes({}) == safetensors.torch.save({})
