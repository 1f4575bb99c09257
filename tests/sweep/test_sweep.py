"""A sweep from the first trial to the image: with runs whose scores are a formula, and once with real ones."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import quiet, tiny
from rnd import cli
from rnd.checkpoint.folder import RunFolder
from rnd.commands.sweep import Flags
from rnd.config import Config
from rnd.config.components import resolve
from rnd.foundation.errors import InterruptedRunError, RunError, UserError, install
from rnd.jobs.scheduler import Outcome
from rnd.sweep.plan import Plan
from rnd.sweep.results import best_table
from rnd.sweep.score import score
from rnd.sweep.space import Between, OneOf
from rnd.sweep.study import JOURNAL, Study
from rnd.sweep.sweep import Sweep, search

pytest.importorskip("optuna", reason="needs the extra sweep")


def height(config: Config) -> float:
    """The return of a run at its end: highest at lr 0.01, and hardly different with gamma_ext."""
    return -abs(math.log10(config.lr) + 2) + 0.001 * config.gamma_ext + 0.01 * config.seed


class Formula:
    """A scheduler whose runs follow a formula instead of training: ten rows, linear in the frames."""

    def __init__(self, stop_after: int = 10**9, fails=lambda planned: False, height=height):
        self.rows, self.stop_after, self.fails, self.height, self.trained = 0, stop_after, fails, height, []

    def run(self, queue):
        for planned in queue:
            self.trained.append(planned.label)
            if self.fails(planned):
                yield Outcome(planned, "it fails")
                continue
            planned.path.mkdir(parents=True, exist_ok=True)
            (planned.path / "config.json").write_text(json.dumps(planned.config.to_dict()))
            path = planned.path / "metrics.csv"
            done = path.read_text().count("\n") - 1 if path.exists() else 0
            if not done:
                path.write_text("iteration,frames,return_mean\n")
            for row in range(max(done, 0) + 1, planned.config.iterations + 1):
                if self.rows == self.stop_after:
                    raise InterruptedRunError("killed", 130)
                self.rows += 1
                share = row / planned.config.iterations
                with path.open("a") as file:
                    file.write(
                        f"{row},{row * planned.config.frames_per_rollout},{self.height(planned.config) * share}\n"
                    )
                if queue.stops(planned):
                    break
            yield Outcome(planned)


def plan_of(tmp_path, trials=12, **changes) -> Plan:
    start = resolve(tiny(iterations=10, out=str(tmp_path), name="sweep", lr=1e-4))
    space = {"lr": Between(1e-5, 1e-1), "gamma_ext": OneOf((0.9, 0.99))}
    return replace(Plan(start, space, (1, 2), "return_mean", trials), **changes)


def rows_of(plan: Plan) -> list[dict[str, str]]:
    return list(csv.DictReader((plan.folder / "sweep.csv").open()))


def test_a_better_config_is_found_and_bad_trials_end_early(tmp_path):
    plan, jobs = plan_of(tmp_path), Formula()
    search(plan, jobs, console := quiet())
    rows = rows_of(plan)
    assert [row["trial"] for row in rows] == [str(number) for number in range(12)]
    assert (rows[0]["lr"], rows[0]["gamma_ext"], rows[0]["state"]) == ("0.0001", "0.99", "complete")
    pruned = [row for row in rows if row["state"] == "pruned"]
    assert pruned and jobs.rows == 12 * 20 - len(pruned) * 17  # three rows of the first seed each, instead of twenty
    best = max((row for row in rows if row["state"] == "complete"), key=lambda row: float(row["score"]))
    config = Config.from_dict(json.loads((plan.folder / "best.json").read_text()))
    values = {"lr": float(best["lr"]), "gamma_ext": float(best["gamma_ext"])}
    assert resolve(config) == replace(plan.start, name=None, **values)
    assert abs(math.log10(config.lr) + 2) < 1  # it started two away
    # The score: the mean of the last five of ten rows on a line to the height, over both seeds.
    heights = [height(replace(config, seed=seed)) for seed in (1, 2)]
    assert float(best["score"]) == pytest.approx(np.mean(heights) * np.mean([0.6, 0.7, 0.8, 0.9, 1.0]))
    said = console.file.getvalue()
    assert f"rnd train --config {plan.folder / 'best.json'}" in said and "0 (start)" in said
    shares = {name: int(said.split(f"{name} ")[-1].split("%")[0]) for name in plan.space}
    assert shares["lr"] > 70 and sum(shares.values()) == 100
    assert (plan.folder / "sweep.png").stat().st_size > 10_000


def test_stopped_anywhere_it_continues_as_if_it_had_not_been(tmp_path):
    whole = plan_of(tmp_path / "whole")
    search(whole, Formula(), quiet())
    stopped = plan_of(tmp_path / "stopped")
    trained = []
    for after in (3, 17, 31, 44, 58):
        with pytest.raises(InterruptedRunError):
            search(stopped, jobs := Formula(after), quiet())
        trained += jobs.trained
    with (stopped.folder / JOURNAL).open("a") as file:
        file.write('{"op_code": 4, "worker')  # the power failed while a line was written
    search(stopped, jobs := Formula(), quiet())
    assert rows_of(stopped) == rows_of(whole)
    assert jobs.trained[0] == trained[-1]  # the trial that was interrupted
    search(stopped, again := Formula(), quiet())
    assert not again.trained
    search(replace(stopped, trials=13), more := Formula(), quiet())
    assert {label.split(",")[0] for label in more.trained} == {"trial 12"}


def test_the_finals_take_back_what_was_luck(tmp_path):
    """Seeds 1 and 2 reward distance from the start, seeds 3 to 5 do not."""

    def lucky(config):
        distance = abs(math.log10(config.lr / 1e-4))
        return distance if config.seed < 3 else 1 - distance

    plan = plan_of(tmp_path, trials=8, finals=3)
    with pytest.raises(InterruptedRunError):
        search(plan, Formula(8 * 20 - 60, height=lucky), quiet())
    with pytest.raises(InterruptedRunError):
        search(plan, first := Formula(70, height=lucky), quiet())
    searched = max(rows_of(plan), key=lambda row: float(row["score"]))["trial"]
    search(plan, last := Formula(height=lucky), console := quiet())
    finals = [label for label in dict.fromkeys(first.trained + last.trained) if int(label[-1]) > 2]
    assert len(finals) == 4 * 3 and {f"trial {n}, seed 4" for n in (0, searched)} <= {*finals}
    rows = rows_of(plan)
    assert rows[0]["seed_5"] and rows[int(searched)]["seed_5"] and sum(bool(row["seed_5"]) for row in rows) == 4
    assert json.loads((plan.folder / "best.json").read_text())["lr"] == plan.start.lr
    assert "of the first trial: nothing better was found" in console.file.getvalue()


def test_the_work_that_is_left_is_known(tmp_path):
    plan = plan_of(tmp_path, trials=10)
    plan.folder.mkdir()
    sweep = Sweep(plan, Study(plan.folder, plan.space, plan.start_values), quiet())
    assert (sweep.count, sweep.frames) == (20, 20 * 2560)
    jobs, ended = Formula(), 0
    for outcome in jobs.run(sweep):
        sweep.end(outcome)
        ended += 1
    assert sweep.count == ended == len(jobs.trained) < 20
    assert sweep.frames == jobs.rows * 256


def odd(plan: Plan) -> Plan:
    """Some of its trials have values that do not go together."""
    start = replace(plan.start, name="odd")
    return replace(plan, start=start, space={"env.num_envs": OneOf((4, 8)), "minibatches": OneOf((8, 4))}, trials=6)


def test_trials_that_cannot_be_trained_are_no_work(tmp_path):
    plan = odd(plan_of(tmp_path))
    plan.folder.mkdir()
    sweep = Sweep(plan, Study(plan.folder, plan.space, plan.start_values), quiet())
    jobs = Formula()
    for outcome in jobs.run(sweep):
        sweep.end(outcome)
    assert sweep.count == len(jobs.trained) < 12 and "fail" in [row["state"] for row in rows_of(plan)]


def test_a_failed_trial_does_not_stop_the_others_unless_it_is_the_first(tmp_path):
    plan = plan_of(tmp_path, trials=5)
    search(plan, Formula(fails=lambda planned: planned.label == "trial 2, seed 2"), console := quiet())
    assert [row["state"] for row in rows_of(plan)] == ["complete", "complete", "fail", "complete", "complete"]
    assert "trial 2: failed: it fails" in console.file.getvalue()
    first = replace(plan, start=replace(plan.start, name="first"))
    with pytest.raises(RunError, match=r"the first trial, .* failed: it fails"):
        search(first, Formula(fails=lambda planned: True), quiet())
    search(first, Formula(), quiet())  # repeated, where the reason is gone
    assert [row["state"] for row in rows_of(first)] == ["complete"] * 5
    search(odd(plan), Formula(), console := quiet())
    assert "failed: 4 environments do not divide into 8 minibatches" in console.file.getvalue()


def test_a_folder_of_another_sweep_is_refused(tmp_path):
    plan = plan_of(tmp_path, trials=1)
    search(plan, Formula(), quiet())
    other = replace(plan, start=replace(plan.start, epochs=3), seeds=(1,))
    with pytest.raises(
        UserError, match=r"sweep with other flags: epochs 4 instead of 3, seeds \[1, 2\] instead of \[1\]"
    ):
        search(other, Formula(), quiet())
    (plan.folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"is the folder of a run; choose another --name"):
        search(plan, Formula(), quiet())


def test_two_processes_do_not_begin_the_same_sweep(tmp_path):
    plan = plan_of(tmp_path)
    plan.folder.mkdir()
    with RunFolder(plan.folder).lock(), pytest.raises(UserError, match="in use by another process"):
        search(plan, Formula(), quiet())
    assert not (plan.folder / "sweep.json").exists()  # the other process describes the sweep


def test_a_damaged_journal_is_one_line(tmp_path):
    plan = plan_of(tmp_path, trials=1)
    search(plan, Formula(), quiet())
    lines = (plan.folder / JOURNAL).read_text().splitlines()
    (plan.folder / JOURNAL).write_text("\n".join([lines[0], "{half", *lines[1:], ""]))
    with pytest.raises(UserError, match=r"journal\.log is not the journal of a sweep"):
        search(plan, Formula(), quiet())


def test_values_are_text_and_no_markup(tmp_path):
    trial = SimpleNamespace(number=1, value=1.0, params={"lr": 1e-3, "gamma_ext": "[red]high"})
    (console := quiet()).print(best_table(plan_of(tmp_path), [trial], {}))
    assert "gamma_ext [red]high" in console.file.getvalue()


def test_without_optuna_the_error_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError) as refused:
        search(plan_of(tmp_path), Formula(), quiet())
    assert install("sweep") in str(refused.value) and not any(tmp_path.iterdir())


def test_a_score_is_the_mean_of_the_second_half():
    columns = {"frames": np.arange(1.0, 11.0), "return_mean": np.array([np.nan, *range(9)])}
    assert score(columns, "return_mean", 10) == np.mean([4, 5, 6, 7, 8])
    assert score(columns, "return_mean", 4) == np.mean([1, 2])
    assert math.isnan(score(columns, "return_mean", 1)) and math.isnan(score({}, "success", 10))


TINY = [
    "CartPole-v1",
    "--bonus",
    "rnd",
    "--frames",
    "512",
    "--env.num-envs",
    "4",
    "--bonus-options.random-steps",
    "16",
    "--threads",
    "1",
]
TINY += ["--writers", "none", "--bonus-options.features", "8", "--trials", "2", "--seeds", "1", "--finals", "0"]


def test_the_command_trains_real_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.dispatch(["sweep", *TINY, "--over", "lr", "epochs=1,2", "--jobs", "2"])
    folder = tmp_path / "runs" / "sweep-cartpole-v1-rnd-mlp"
    rows = list(csv.DictReader((folder / "sweep.csv").open()))
    assert [row["state"] for row in rows] == ["complete"] * 2 and len({row["lr"] for row in rows}) == 2
    assert json.loads((folder / "runs/trial-001-s1/config.json").read_text())["lr"] == float(rows[1]["lr"])
    started = []
    monkeypatch.setattr("rnd.run.start", lambda config, console: started.append(config))
    cli.dispatch(["train", "--config", str(folder / "best.json"), "--seed", "9"])
    best = max(rows, key=lambda row: float(row["score"]))
    assert (started[0].lr, started[0].seed, started[0].name) == (float(best["lr"]), 9, None)
    with pytest.raises(UserError, match="leave out --seed 4"):
        cli.dispatch(["sweep", *TINY, "--seed", "4"])
    assert Flags().trials == 20


@pytest.mark.long
def test_killed_and_repeated_the_command_completes(tmp_path):
    """SIGKILL, of the sweep and so of nothing else: its runs save themselves."""
    command = [sys.executable, "-m", "rnd", "sweep", *TINY, "--over", "lr", "--trials", "4", "--frames", "8192"]
    results = []
    for name, kills in (("whole", 0), ("killed", 3)):
        folder = tmp_path / name
        folder.mkdir()
        for _ in range(kills):
            process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
            seen = len([*folder.glob("runs/*/runs/trial-*")])
            end = time.monotonic() + 120
            while len([*folder.glob("runs/*/runs/trial-*")]) <= seen and time.monotonic() < end:
                time.sleep(0.05)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(5)  # its run sees the end of the pipe, and saves
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        results.append((folder / "runs/sweep-cartpole-v1-rnd-mlp/sweep.csv").read_text())
    assert results[0] == results[1] and Path(folder / "runs").is_dir()
