"""Small runs, in this process and in processes of their own, and what to compare of them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from helpers import quiet
from rnd import cli, run
from rnd.checkpoint import checkpoint
from rnd.config import Config
from rnd.config.presets import preset
from rnd.models.policy.cnn import CNN
from rnd.models.policy.gru import GRU
from rnd.models.policy.mlp import MLP

SOURCE = Path(__file__).parents[2] / "src"
ROLLOUT = 8
ENVS = 4


def small(game: str = "CartPole-v1", iterations: int = 4, **changes) -> Config:
    """A run of a second: 4 environments, rollouts of 8 steps, narrow networks."""
    config = dataclasses.replace(preset(game), bonus="rnd")
    backend = "ale" if config.env.id.startswith("ALE/") else "auto"
    env = {"num_envs": ENVS, "workers": 0, "backend": backend} | changes.pop("env", {})
    env = dataclasses.replace(config.env, **env)
    options = dataclasses.replace(config.bonus_options, features=16, hidden=16, random_steps=1)
    saving = dataclasses.replace(config.checkpoint, **changes.pop("checkpoint", {}))
    width = changes.pop("width", 16)
    policies = {"mlp": MLP.Options(width), "gru": GRU.Options(width), "cnn": CNN.Options()}
    values = {"device": "cpu", "rollout_steps": ROLLOUT, "threads": 1} | changes
    values["policy_options"] = policies[values.get("policy", config.policy)]
    config = dataclasses.replace(config, env=env, bonus_options=options, checkpoint=saving, **values)
    return dataclasses.replace(config, frames=iterations * config.frames_per_rollout)


def start(config: Config, out: Path, name: str = "run") -> Path:
    config = dataclasses.replace(config, out=str(out), name=name)
    config.validate()
    return run.start(config, quiet()).path


def resume(path: Path, iterations: int | None = None) -> str:
    """Go on; returns what was said."""
    console = quiet()
    frames = None
    if iterations is not None:
        config = Config.from_dict(json.loads((path / "config.json").read_text()))
        frames = iterations * config.frames_per_rollout
    run.resume(path, console, frames)
    return console.file.getvalue()


def fingerprint(path: Path) -> dict[str, str]:
    """Hashes of all that has state in the newest checkpoint, and of the metrics."""
    newest, problems = checkpoint.newest(path / "checkpoints")
    assert newest is not None and not problems
    files = checkpoint.serialise({}, newest.state)
    return {
        **{name: checkpoint.sha256(data) for name, data in files.items()},
        "metrics": checkpoint.sha256((path / "metrics.csv").read_bytes()),
    }


def iterations(path: Path) -> list[int]:
    """The first column of the metrics: must be 1, 2, 3 ..."""
    if not (path / "metrics.csv").exists():
        return []
    lines = (path / "metrics.csv").read_text().split("\n")[1:-1]
    return [int(line.split(",")[0]) for line in lines]


def tensorboard_steps(path: Path, name: str = "loss/loss") -> list[int]:
    """Steps of a curve as TensorBoard shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars(name)]


class Rnd:
    """The program as a real process; all its children carry a mark, so that orphans are found."""

    def __init__(self, *arguments: str, cwd: Path, env: dict[str, str] | None = None, program: list[str] | None = None):
        self.mark = uuid.uuid4().hex
        self.begun = time.monotonic()
        command = program or [sys.executable, "-m", "rnd"]
        path = os.pathsep.join([str(SOURCE), *(env or {}).get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep)
        variables = os.environ | {"OMP_NUM_THREADS": "1"} | (env or {}) | {"PYTHONPATH": path, "RND_MARK": self.mark}
        self.popen = subprocess.Popen(
            [*command, *arguments],
            cwd=cwd,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for_rows(self, path: Path, rows: int, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while len(iterations(path)) < rows:
            assert self.popen.poll() is None, self.popen.communicate()[0]
            assert time.monotonic() < deadline, "the run does not get on"
            time.sleep(0.01)

    def finish(self, seconds: float = 60) -> tuple[int, str]:
        output, _ = self.popen.communicate(timeout=seconds)
        return self.popen.returncode, output

    def orphans(self) -> list[int]:
        """Processes that carry the mark."""
        wanted, found = f"RND_MARK={self.mark}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if wanted in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def no_orphans(self, seconds: float = 5) -> bool:
        deadline = time.monotonic() + seconds
        while self.orphans() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.orphans()


IMAGE_FLAGS = [
    *("--bonus", "rnd", "--env.num-envs", "4", "--rollout-steps", "8", "--device", "cpu", "--threads", "1"),
    *("--bonus-options.features", "16", "--bonus-options.hidden", "16", "--bonus-options.random-steps", "1"),
    *("--out", ".", "--name", "run"),
]
"""The small run on the command line, for images."""
FLAGS = [*IMAGE_FLAGS, "--policy-options.width", "16"]
"""The same for vectors."""
FRAMES = ENVS * ROLLOUT
"""Frames of one of its iterations, where a step is a frame."""


def rnd(*arguments: str | Path) -> tuple[int, str]:
    """The command line in this process: its exit code, and what it printed. A traceback is an exception here."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.raises(SystemExit) as left:
        cli.main([*map(str, arguments)])
    return left.value.code, said.getvalue()


def contents(path: Path) -> dict[str, bytes]:
    """Everything in a folder: the bytes of files, the targets of links."""
    found = {}
    for entry in [path, *sorted(path.rglob("*"))]:
        if entry.is_symlink():
            found[str(entry)] = os.fsencode(entry.readlink())
        elif entry.is_file():
            found[str(entry)] = entry.read_bytes()
    return found
