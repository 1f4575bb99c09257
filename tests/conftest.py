"""No test compiles a game unless it says so: `$CXX` names no compiler."""

from __future__ import annotations

import os

import pytest

os.environ["CXX"] = "no-compiler-in-tests"


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory):
    """Names of code that tests train with are not remembered for the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
