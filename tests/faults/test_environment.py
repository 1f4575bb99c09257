"""Rows 35 and 38: an environment that raises, exits or returns nonsense while a run trains."""

from __future__ import annotations

import pytest
from fault_helpers import FLAGS, FRAMES, Rnd, iterations, resume

from rnd.checkpoint import checkpoint

MOODY = """
import sys
from pathlib import Path
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

class make(CartPoleEnv):
    steps = 0

    def step(self, action):
        self.steps += 1
        fault = Path("fault").read_text() if self.steps > 30 else ""
        if fault == "raise":
            raise ZeroDivisionError("a stone on the track")
        if fault == "exit":
            sys.exit(3)
        obs, *rest = super().step(action)
        return (obs[:1] if fault == "shape" else obs), *rest
"""


@pytest.mark.parametrize(
    ("fault", "workers", "line", "trace"),
    [
        ("raise", "2", " raised ZeroDivisionError: a stone on", 'raise ZeroDivisionError("a stone on the track")'),
        ("exit", "0", " raised SystemExit: 3", "sys.exit(3)"),
        pytest.param("exit", "2", " raised SystemExit: 3", "sys.exit(3)", marks=pytest.mark.long),
        ("shape", "2", ": its observation has the shape (1,) instead of (4,), at step", None),
    ],
)
def test_the_run_says_why_and_can_be_resumed(fault, workers, line, trace, tmp_path, monkeypatch):
    (tmp_path / "moody_train.py").write_text(MOODY)
    (tmp_path / "fault").write_text(fault)
    flags = [*FLAGS, "--frames", str(8 * FRAMES), "--checkpoint.every-iterations", "2", "--env.workers", workers]
    program = Rnd("train", "moody_train:make", *flags, cwd=tmp_path)
    code, said = program.finish()
    assert code == 1, said
    assert f"rnd: environment 0{line}" in said or f"rnd: environment 1{line}" in said  # of two workers, the first
    assert "to continue from the last checkpoint: rnd resume run" in said
    assert (trace in said and "Traceback" in said) if trace else "Traceback" not in said
    assert program.no_orphans()
    assert checkpoint.found(tmp_path / "run" / "checkpoints")[-1].name == "000000002"
    (tmp_path / "fault").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    resume(tmp_path / "run")
    assert iterations(tmp_path / "run") == list(range(1, 9))


def test_a_module_that_cannot_be_imported_shows_its_traceback(tmp_path):
    (tmp_path / "half_written.py").write_text("import sys\nsys.exit(3)\n")
    code, said = Rnd("train", "half_written:make", *FLAGS, cwd=tmp_path).finish()
    assert code == 2 and "its module raised SystemExit: 3" in said and 'half_written.py", line 2' in said


UNSEEDED = """
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

class make(CartPoleEnv):
    def step(self, action):
        obs, *rest = super().step(action)
        self.state = np.asarray(self.state) + np.random.default_rng().normal(0, 1e-3, 4)
        return obs, *rest
"""


def test_an_environment_that_ignores_its_seed_can_be_resumed(tmp_path):
    (tmp_path / "unseeded.py").write_text(UNSEEDED)
    code, said = Rnd("train", "unseeded:make", *FLAGS, "--frames", str(2 * FRAMES), cwd=tmp_path).finish()
    assert code == 0 and said.count("unseeded:make draws randomness from elsewhere than its seed") == 1, said
    code, said = Rnd("resume", "run", "--frames", str(4 * FRAMES), cwd=tmp_path).finish()
    assert code == 0 and said.count("unseeded:make cannot continue unfinished episodes: new ones start") == 1, said
    assert iterations(tmp_path / "run") == [1, 2, 3, 4]
