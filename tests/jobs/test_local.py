"""Runs in processes: finished ones are reused, interrupted ones continue, failed ones are reported."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rnd.config import BonusOptions
from rnd.config.presets import preset, small
from rnd.foundation.errors import InterruptedRunError
from rnd.jobs.local import Bars, LocalJobs
from rnd.jobs.planned import PlannedRun, State
from rnd.jobs.scheduler import RunList, frames_done, job_files, limit_threads
from rnd.models.policy.mlp import WidthOptions
from rnd.paper.experiments import Arm, Experiment
from rnd.paper.plan import Scale, planned_runs

ROLLOUTS = 30
"""Rollouts of the run that is interrupted."""
SLOW_ENV = "slow_cartpole:make"
SLOW_CARTPOLE = """
import time
from pathlib import Path
import gymnasium

class Slow(gymnasium.Wrapper):
    def step(self, action):
        if Path(__file__).with_name("slow").exists():
            time.sleep(0.004)
        return self.env.step(action)

def make():
    return Slow(gymnasium.make("CartPole-v1"))
"""
"""Sleeps in every step while the file `slow` exists: 4 environments x 128 steps are then 2 seconds per rollout, and the
run cannot end in less than a minute."""

PROGRAM = """
import signal, sys
import test_local
from rnd import cli
from rnd.paper import experiments
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for tests in the background
experiments.EXPERIMENTS["tiny"] = lambda: test_local.experiment(test_local.ROLLOUTS, 1, test_local.SLOW_ENV)
cli.main(["paper", "tiny", "--jobs", "2", "--out", sys.argv[1]])
"""


def experiment(rollouts: int = 6, arms: int = 2, env_id: str = "CartPole-v1") -> Experiment:
    """An experiment of seconds with the form of a real one."""
    config = small(env_id)
    config = replace(
        config,
        env=replace(config.env, num_envs=4),
        bonus_options=BonusOptions(features=8, hidden=8, random_steps=16),
        policy_options=WidthOptions(8),
        rollout_steps=128,
        device="cpu",
    )
    config = replace(config, frames=rollouts * config.frames_per_rollout)
    both = (Arm("rnd", "RND", config), Arm("none", "PPO", replace(config, bonus="none")))
    return Experiment("tiny", "Tiny", both[:arms], seeds=1)


def run_all(found, jobs=2):
    return list(LocalJobs(jobs, Console(quiet=True)).run(RunList(found)))


def test_runs_are_trained_and_finished(tmp_path):
    found = planned_runs(experiment(), Scale(), tmp_path)
    outcomes = run_all(found)
    assert {o.planned.group for o in outcomes} == {"rnd", "none"} and not any(o.problem for o in outcomes)
    assert {run.state() for run in found} == {State.FINISHED}
    assert frames_done(found[0]) == 6 * 4 * 128


def test_a_failing_run_is_reported_and_the_others_continue(tmp_path):
    good, bad = planned_runs(experiment(2), Scale(), tmp_path)
    config = replace(bad.config, env=replace(bad.config.env, id="CartPole-v77"), name="bad")
    outcomes = {o.planned.group: o.problem for o in run_all([replace(bad, config=config), good])}
    assert outcomes["rnd"] is None
    assert "exit code 2" in outcomes["none"] and "CartPole" in outcomes["none"]


class SleepingJob:
    """A job that runs until it is stopped."""

    def __init__(self, planned, threads, alone):
        self.planned, self.process = planned, subprocess.Popen(["sleep", "60"])
        STARTED.append(self.process)

    def ended(self):
        return False

    def close(self):
        self.process.wait(10)


STARTED: list[subprocess.Popen] = []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_stops_all_jobs(tmp_path, monkeypatch, number):
    monkeypatch.setattr("rnd.jobs.local.Job", SleepingJob)
    monkeypatch.setattr("rnd.jobs.local.POLL", 0.01)
    STARTED.clear()
    monkeypatch.setattr("rnd.jobs.local.Bars.show", lambda *_: os.kill(os.getpid(), number))
    with pytest.raises(InterruptedRunError, match="repeat the same command") as stopped:
        run_all(planned_runs(experiment(), Scale(), tmp_path))
    assert stopped.value.code == (130 if number == signal.SIGINT else 75)
    assert [process.returncode for process in STARTED] == [-signal.SIGTERM] * 2


def wait_for(condition, seconds=300.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    pytest.fail(f"not true after {seconds:g} seconds")


def start(folder: Path, out: Path) -> subprocess.Popen:
    """`rnd paper tiny` as a process of its own."""
    (folder / "slow_cartpole.py").write_text(SLOW_CARTPOLE)
    path = [str(folder), str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(out)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def alive(folder: Path) -> list[str]:
    """Processes that still train in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if "--run-config" in words and any(str(folder) in word for word in words):
            found.append(path.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.long
@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_interrupted_and_repeated_the_command_completes(tmp_path, how, code):
    out = tmp_path / "out"
    (run,) = planned_runs(experiment(ROLLOUTS, 1, SLOW_ENV), Scale(), out)
    metrics = run.path / "metrics.csv"
    (tmp_path / "slow").touch()
    first = start(tmp_path, out)
    wait_for(lambda: frames_done(run) > 0)
    first.send_signal(how)
    first.communicate(timeout=300)
    assert first.returncode == code
    wait_for(lambda: not alive(out))  # the job ends with its scheduler
    assert run.state() is State.PARTIAL
    assert not (out / "tiny.png").exists()

    (tmp_path / "slow").unlink()
    second = start(tmp_path, out)
    output, _ = second.communicate(timeout=300)
    assert second.returncode == 0, output
    assert "to resume" in output and (out / "tiny.png").exists()
    assert run.state() is State.FINISHED
    iterations = [line.split(",")[0] for line in metrics.read_text().splitlines()[1:]]
    assert iterations == [str(i) for i in range(1, ROLLOUTS + 1)]  # no row is missing or written twice
    assert json.loads((run.path / "run.json").read_text()).get("resumed")

    before = metrics.stat().st_mtime_ns
    (out / "tiny.png").unlink()
    third = start(tmp_path, out)
    output, _ = third.communicate(timeout=300)
    assert third.returncode == 0 and "1 run, 1 finished" in output and (out / "tiny.png").exists()
    assert metrics.stat().st_mtime_ns == before


def test_a_name_is_text_and_no_markup(tmp_path):
    (planned,) = planned_runs(experiment(arms=1), Scale(), tmp_path)
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Bars(console, queue := RunList([replace(planned, group="[red]mine")])) as bars:
        bars.show(queue.runs)
    assert "[red]mine, seed 1" in console.file.getvalue()


def test_every_run_has_its_own_config_and_log(tmp_path):
    config = replace(small("CartPole-v1"), out=str(tmp_path))
    runs = [PlannedRun("v0.1", replace(config, name=f"v0.1-s{seed}")) for seed in (1, 2)]
    assert len({path for run in runs for path in job_files(run)}) == 4


def test_runs_share_the_cores():
    atari = preset("montezuma")
    assert limit_threads(atari, 3, on_gpu=False).env.workers == 3
    assert limit_threads(atari, 3, on_gpu=True).env.workers == 2  # one core is for the policy's thread
    chosen = replace(atari, env=replace(atari.env, workers=7))
    assert limit_threads(chosen, 3, on_gpu=False) == chosen
    assert limit_threads(small("CartPole-v1"), 3, on_gpu=False).env.workers is None


@pytest.mark.long
def test_figure3_is_trained_drawn_and_then_reused(tmp_path):
    """Some minutes on two cores; seconds when all runs are finished."""
    words = [sys.executable, "-m", "rnd", "paper", "figure3", "--scale", "0.000002", "--jobs", "2"]
    words += ["--out", str(tmp_path)]
    for seconds, expected in ((600, "6 to run"), (60, "6 finished")):
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0 and expected in done.stdout, done.stdout + done.stderr
        assert (tmp_path / "figure3-scale-2e-06.png").stat().st_size > 10_000
