from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def state_home(tmp_path_factory):
    """Names of code that tests train with are not remembered for the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
