"""Runs on a Ray cluster of two nodes, one worker of which is killed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from rnd.foundation.errors import UserError, install
from rnd.jobs.planned import State
from rnd.jobs.ray_jobs import Needs, RayJobs, prepare
from rnd.jobs.scheduler import RunList
from rnd.paper.experiments import figure3
from rnd.paper.plan import Scale, planned_runs

SCALE = 3e-6
"""3 arms × 2 seeds; three rollouts of 4 environments per run."""
SOURCE = Path(__file__).parents[2] / "src"


def jobs(**needs) -> RayJobs:
    return RayJobs("somewhere", Console(quiet=True), **needs)


def test_needs_of_a_run(tmp_path):
    (found, *_) = planned_runs(figure3(), Scale(SCALE), tmp_path)
    assert jobs().needs({"CPU": 64, "GPU": 8}, found) == Needs(8, 1)
    assert jobs(gpus=0.5).needs({"CPU": 64, "GPU": 8}, found) == Needs(4, 0.5)
    assert jobs().needs({"CPU": 64}, found) == Needs(1, 0)
    assert jobs().needs({"CPU": 64, "GPU": 8}, found.on("cpu")) == Needs(1, 0)
    assert jobs(cpus=3).needs({"CPU": 64}, found) == Needs(3, 0)
    with pytest.raises(UserError, match="needs 65 CPUs and 0 GPUs; the cluster has 64 and 0"):
        jobs(cpus=65).needs({"CPU": 64}, found)
    assert Needs(3, 0).fit({"CPU": 64}) == 21 and Needs(4, 0.5).fit({"CPU": 64, "GPU": 2}) == 4


def test_a_task_reads_absolute_paths_and_uses_its_own_cpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (planned, *_) = planned_runs(figure3(), Scale(SCALE), Path("out"))
    text = prepare(planned, Needs(3, 0)).read_text()
    assert f'"out": "{tmp_path}/out/runs"' in text and '"workers": 3' in text
    assert '"workers": 2' in prepare(planned, Needs(3, 1)).read_text()  # one for the thread that acts


def test_without_ray_the_error_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=re.escape(install("ray"))):
        next(jobs().run(RunList(planned_runs(figure3(), Scale(SCALE), tmp_path))))


def lock_owner(path: Path) -> int | None:
    """The process that trains in a run folder now."""
    lock = path / "lock"
    found = re.match(r"pid (\d+)", lock.read_text()) if lock.exists() else None
    return int(found[1]) if found else None


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_figure3_completes_though_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray", reason="needs the extra ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = str(SOURCE)
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    try:
        cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
        found = planned_runs(figure3(), Scale(SCALE), tmp_path)
        assert len(found) == 6
        command = [sys.executable, "-m", "rnd", "paper", "figure3", "--scale", str(SCALE), "--device", "cpu"]
        driver = subprocess.Popen(
            [*command, "--out", str(tmp_path), "--ray", cluster.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        killed = kill_one(driver, found)
        output, _ = driver.communicate(timeout=580)
    finally:
        cluster.shutdown()
    assert driver.returncode == 0, output
    assert {run.state() for run in found} == {State.FINISHED}
    for run in found:
        rows = [line.split(",")[0] for line in (run.path / "metrics.csv").read_text().splitlines()[1:]]
        assert rows == ["1", "2", "3"]
    assert lock_owner(killed.path) != killed.pid
    assert list(tmp_path.glob("figure3*.png"))


class Killed:
    def __init__(self, path: Path, pid: int):
        self.path, self.pid = path, pid


def kill_one(driver: subprocess.Popen, found) -> Killed:
    """Wait until a run has trained a rollout, and kill its worker."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and driver.poll() is None:
        for run in found:
            metrics = run.path / "metrics.csv"
            rows = metrics.read_text().count("\n") if metrics.exists() else 0
            owner = lock_owner(run.path)
            if rows in (2, 3) and owner:
                os.kill(owner, signal.SIGKILL)
                return Killed(run.path, owner)
        time.sleep(0.05)
    pytest.fail(driver.communicate()[0] if driver.poll() is not None else "no run finished a rollout")
