"""Tensors as the bytes of a safetensors file.

The library's own writer holds two copies of the tensors, and ends the program where there is no memory for them: a
panic of Rust instead of a MemoryError. A long run must neither need that memory nor end so.
"""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

NAMES = {
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What the format calls the types of tensors, in the order in which the library writes them: wide ones first."""
RANK = {dtype: rank for rank, dtype in enumerate(NAMES)}
ALIGNMENT = 8
"""The header's length is a multiple of it."""


def tensor_bytes(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """A file of tensors that lie in the memory of the CPU: a header in JSON, then the tensors. The bytes are those of
    `safetensors.torch.save`, which writes the file where a tensor has a rarer type: only bonuses and networks of the
    user's own have those."""
    if not all(tensor.dtype in RANK for tensor in tensors.values()):
        return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    order = sorted(tensors.items(), key=lambda item: (RANK[item[1].dtype], item[0]))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, tensor in order:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return b"".join([len(text).to_bytes(8, "little"), text, *(raw(tensor) for _, tensor in order)])


def raw(tensor: Tensor) -> Any:
    """The memory of a tensor as a buffer; a copy where it is not contiguous."""
    dense = tensor.contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8).numpy()  # the stride of one number can be 0
