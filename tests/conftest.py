"""No test compiles a game unless it says so: `$CXX` names no compiler. Without a GPU, Triton interprets its kernels."""

from __future__ import annotations

import os

import pytest
import torch

os.environ["CXX"] = "no-compiler-in-tests"
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory):
    """Names of code that tests train with are not remembered for the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
