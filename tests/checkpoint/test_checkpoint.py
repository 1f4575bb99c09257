"""What goes into a checkpoint comes out; which ones are kept."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from rnd.checkpoint import checkpoint

ABOUT = {"iteration": 1, "score": None}

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**130), 2**130),
    st.floats(allow_nan=False),
    st.text(),
    st.sampled_from(["uint8", "bool", "int32", "int64", "float32", "float64"]).map(
        lambda kind: torch.arange(6).reshape(2, 3).to(getattr(torch, kind))
    ),
    st.sampled_from(["uint8", "int64", "float32", "uint32"]).map(lambda kind: np.arange(5).astype(kind)),
    st.just(torch.zeros(4, 0)),
)
keys = st.text("abc.$/", min_size=1, max_size=4).filter(lambda key: key not in ("$tensor", "$array"))
trees = st.dictionaries(
    keys, st.recursive(leaves, lambda part: st.lists(part, max_size=3) | st.dictionaries(keys, part, max_size=3))
)


@settings(max_examples=60, deadline=None)
@given(trees)
def test_round_trip(state):
    tensors: dict[str, torch.Tensor] = {}
    plain = checkpoint.pack(state, "", tensors)
    back = checkpoint.unpack(plain, tensors)
    assert same(back, state)


def test_written_and_read(tmp_path):
    state = {
        "weights": {"a.b": torch.randn(3, 4)[:, 1:], "half": torch.ones(2, dtype=torch.bfloat16)},
        "env": {"bytes": np.frombuffer(b"plain", np.uint8)},
        "big": 2**127 - 1,
        "list": [1, {"deep": torch.tensor(3.5, dtype=torch.float64)}],
    }
    path = checkpoint.write(tmp_path, "000000001", ABOUT, state)
    back = checkpoint.read(path)
    assert same(back.state, state) and back.metadata == ABOUT
    assert {file.name for file in path.iterdir()} == {"tensors.safetensors", "state.json", "manifest.json"}


def same(a, b) -> bool:
    if isinstance(b, torch.Tensor):
        return isinstance(a, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in b)
    if isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([None, None, None, None], [3, 4]),
        ([1.0, 5.0, 3.0, 2.0], [2, 3, 4]),
        ([1.0, 2.0, 3.0, 9.0], [3, 4]),
        ([7.0, 7.0, 3.0, 2.0], [2, 3, 4]),
    ],
)
def test_the_newest_and_the_best_are_kept(scores, kept, tmp_path):
    for i, score in enumerate(scores, 1):
        checkpoint.write(tmp_path, f"{i:09d}", {"iteration": i, "score": score}, {})
        checkpoint.prune(tmp_path, keep_last=2)
    assert [int(path.name) for path in checkpoint.found(tmp_path)] == kept
    assert len(list(tmp_path.iterdir())) == len(kept)


def test_an_error_while_writing_leaves_nothing_behind(tmp_path):
    checkpoint.write(tmp_path, "000000001", ABOUT, {})
    with pytest.raises(TypeError):
        checkpoint.write(tmp_path, "000000002", ABOUT, {"code": print})
    assert [path.name for path in tmp_path.iterdir()] == ["000000001"]
