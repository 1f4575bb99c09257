"""Rows 14, 15, 16, 22, 23, 32, 48 and 49: numbers, memory and clocks at their limits."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fault_helpers import FLAGS, FRAMES, IMAGE_FLAGS, SOURCE, Rnd, quiet, resume, small, start

from rnd import envs, run
from rnd.bonus.rnd import RND
from rnd.checkpoint import checkpoint
from rnd.data.normalize import RunningMoments
from rnd.data.transitions import Transitions
from rnd.device import memory
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.foundation.errors import RunError, UserError
from rnd.metrics.metrics import read_csv
from rnd.training import ppo
from rnd.training.trainer import Trainer

# --- 14: loss or gradient that is not finite ---------------------------------------------------------


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_no_step_on_what_is_not_finite(where, tmp_path, monkeypatch):
    """The 20th step goes wrong: the saved parameters are those after the 19th, and the run says where they are."""
    snapshots = []
    backward = ppo.Learner._backward

    def watched(learner, batch):
        snapshots.append([p.detach().clone() for p in learner.parameters])
        if len(snapshots) == 20 and where == "gradient":
            learner.parameters[0].register_hook(lambda gradient: gradient * float("inf"))
        losses = backward(learner, batch)
        if len(snapshots) == 20 and where == "loss":
            losses["loss"] = losses["loss"] * float("nan")
        return losses

    monkeypatch.setattr(ppo.Learner, "_backward", watched)
    with pytest.raises(RunError, match=r"not finite.*no optimiser step was taken.*the state is in .*failed-000000001"):
        start(small(), tmp_path)
    failed = checkpoint.read(tmp_path / "run" / "checkpoints" / "failed-000000001")
    names = [name for name, p in policy_and_bonus().items() if p.requires_grad]
    saved = {f"{part}/{key}": value for part in ("policy", "bonus") for key, value in failed.state[part].items()}
    for name, before in zip(names, snapshots[19], strict=True):
        assert torch.equal(saved[name], before), name
    assert {float(moments["step"]) for moments in failed.state["optimizer"].values()} == {19.0}
    monkeypatch.undo()
    resume(tmp_path / "run")


def policy_and_bonus() -> dict[str, torch.nn.Parameter]:
    trainer = Trainer(small(), envs.make(small()))
    parts = {"policy": trainer.policy, "bonus": trainer.bonus}
    return {f"{part}/{name}": p for part, module in parts.items() for name, p in module.named_parameters()}


def test_exploding_learning_rate_ends_with_a_line(tmp_path):
    with pytest.raises(RunError, match="try a smaller --lr"):
        start(dataclasses.replace(small(iterations=20), lr=1e30), tmp_path)


# --- 15, 16: running statistics ------------------------------------------------------------------------


def test_a_billion_samples_by_their_moments():
    """1000 batches of 10^6 samples each, told by their exact moments, then a batch of real samples."""
    moments = RunningMoments((2,))
    mean, var = torch.tensor([100.0, -3.0], dtype=torch.float64), torch.tensor([4.0, 1e-6], dtype=torch.float64)
    for _ in range(1000):
        moments.merge(mean, var, 1e6)
    check_moments(moments, mean, var, 1e9)
    moments.update(mean + torch.zeros(100, 2))
    assert torch.isfinite(moments.var).all()


@pytest.mark.long
def test_a_billion_real_samples():
    moments, generator = RunningMoments(), torch.Generator().manual_seed(1)
    for _ in range(100):
        moments.update(torch.randn(10**7, generator=generator) * 2 + 1000)
    check_moments(moments, torch.tensor(1000.0).double(), torch.tensor(4.0).double(), 1e9, rtol=1e-4)


def check_moments(moments, mean, var, count, rtol=1e-6):
    assert torch.allclose(moments.mean, mean, rtol=1e-6)
    assert torch.allclose(moments.var, var, rtol=rtol)
    assert float(moments.count) == pytest.approx(count)


def test_constant_pixels_give_a_finite_bonus():
    observation, action = ObservationSpec("image", (84, 84)), ActionSpec("discrete", (3,))
    rnd = RND(observation, action, small().bonus_options)
    for value in (0, 255):
        frames = torch.full((9, 2, 84, 84), value, dtype=torch.uint8)
        rnd.update_statistics(frames)
    frames[5:] = 7  # never seen before
    age, actions = torch.full((9 - 3, 2), 3, dtype=torch.int8), torch.zeros(5, 2, dtype=torch.int64)
    score = rnd.score(Transitions(frames, age, actions, 4))
    assert torch.isfinite(score).all() and (score >= 0).all()
    black = RND(observation, action, small().bonus_options)
    for _ in range(100):
        black.update_statistics(torch.zeros(50, 84, 84, dtype=torch.uint8))
    assert torch.isfinite(black.score(Transitions(frames, age, actions, 4))).all()


# --- 22, 23: memory --------------------------------------------------------------------------------------


def test_memory_is_flat(tmp_path):
    """Resident memory after 50 and after 250 iterations. benchmarks/memory.py does 2,000."""
    config = small("CartPole-v1", 250, epochs=1)
    trainer = Trainer(config, envs.make(config))
    trainer.start()
    at = {row["iteration"]: resident() for row in trainer.train()}
    assert at[250] <= 1.05 * at[50]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("sizes", [{"num_envs": 10**9}, {"num_envs": 10**6}])
def test_too_large_is_refused_with_what_fits(sizes, tmp_path):
    config = small("montezuma", env=sizes)
    with pytest.raises(UserError, match=r"need at least .* GB on cpu, where .* nearest: --env.num-envs \d+") as refused:
        run.start(dataclasses.replace(config, out=str(tmp_path)), quiet())
    near = int(str(refused.value).split("--env.num-envs ")[1].split()[0])
    assert 0 < near < config.env.num_envs and near % config.minibatches == 0
    smaller = dataclasses.replace(config, env=dataclasses.replace(config.env, num_envs=near))
    memory.check(smaller, ObservationSpec("image", (84, 84)), torch.device("cpu"))


def test_too_many_steps_are_refused_with_fewer(tmp_path):
    config = dataclasses.replace(small("montezuma"), rollout_steps=10**8)
    with pytest.raises(UserError, match=r"nearest: --env.num-envs 4 --rollout-steps \d+"):
        start(config, tmp_path)


LITTLE_MEMORY = """
import resource, sys
# before the limit: a module whose import fails for want of memory leaves nothing to give advice about
import rnd.run, rnd.training.evaluation
from rnd.cli import main
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 250_000_000,) * 2)
main(sys.argv[1:])
"""


def test_memory_that_runs_out_gives_advice(tmp_path):
    """The system refuses memory in the middle of the run, which no estimate foresaw."""
    flags = [*IMAGE_FLAGS, "--rollout-steps", "250", "--minibatches", "1"]
    flags += ["--env.workers", "0", "--env.backend", "ale", "--frames", "4000"]
    program = Rnd("train", "venture", *flags, cwd=tmp_path, program=[sys.executable, "-c", LITTLE_MEMORY])
    code, said = program.finish()
    assert code == 1, said
    assert "memory ran out with 4 environments x 250 steps" in said and "Traceback" not in said


# --- 48: a limit on address space ------------------------------------------------------------------------

ADDRESS_SPACE = """
import os, resource, sys
import rnd.run, rnd.report.watch, rnd.training.evaluation  # so that all commands begin alike
from rnd.cli import main
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30,) * 2)
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as left:
        assert not left.code, line
"""


def test_what_could_be_trained_can_be_resumed_under_a_limit_on_address_space(tmp_path):
    """Half of the machine's free memory, which files may have, is more than the limit."""
    lines = [f"train CartPole-v1 {' '.join(FLAGS)} --frames {2 * FRAMES}", f"resume run --frames {4 * FRAMES}"]
    lines += [
        "evaluate run --episodes 2 --device cpu",
        "export run",
        "export run --max-part 1MB",
        "import run/export/parts --name x",
    ]
    code, said = Rnd(*lines, cwd=tmp_path, program=[sys.executable, "-c", ADDRESS_SPACE]).finish()
    assert code == 0, said


# --- 49: errors of the user's own code -------------------------------------------------------------------


@pytest.mark.parametrize("error", [NotImplementedError, RecursionError])
def test_an_error_of_a_bonus_is_not_taken_for_a_lack_of_memory(error, tmp_path, monkeypatch):
    def loss(*_):
        raise error("of the user")

    monkeypatch.setattr(RND, "loss", loss)
    with pytest.raises(error, match="of the user"):
        start(small(), tmp_path)


# --- 32: clocks --------------------------------------------------------------------------------------------


def test_clock_jumps_and_time_zones_leave_durations_positive(tmp_path, monkeypatch):
    """The wall clock runs backwards by an hour a reading, and the time zone changes in the middle."""
    readings = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 1e9 - 3600.0 * next(readings))
    zones = itertools.cycle(["Pacific/Kiritimati", "America/Anchorage"])
    config = small(iterations=5, checkpoint={"every_minutes": 1e-4})
    whole_write = run.Writers.write

    def write(self, row, timing):
        monkeypatch.setenv("TZ", next(zones))
        time.tzset()
        whole_write(self, row, timing)

    monkeypatch.setattr(run.Writers, "write", write)
    path = start(config, tmp_path)
    resume(path, 8)
    timing = read_csv(path / "timing.csv")
    assert len(timing["seconds"]) == 8
    assert np.all(np.array(timing["seconds"]) > 0) and np.all(np.array(timing["frames_per_second"]) > 0)
    assert len(checkpoint.found(path / "checkpoints")) >= 2


def test_only_monotonic_clocks_are_read():
    """`time.time` may jump: no duration is measured with it. A report tells how old a file is, at least 0 s."""
    for path in {*SOURCE.rglob("*.py")} - {SOURCE / "rnd" / "report" / "runs.py"}:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                assert node.attr != "time", f"{path} reads the wall clock"
