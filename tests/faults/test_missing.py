"""Row 37: run.json, metrics.csv or checkpoints/ damaged or missing: said before anything is changed, and kept aside."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from fault_helpers import contents, fingerprint, iterations, resume, rnd

from rnd import run
from rnd.foundation.errors import RunError

RUN_JSON = {
    "missing": None,
    "cut": b'{"rnd": "0.1", "py',
    "binary": b"\xff\xfe\x00",
    "list": b"[]",
    "wrong type": b'{"resumed": 3}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("damage", RUN_JSON)
def test_run_json_is_not_needed_to_go_on(damage, broken, finished):
    data = RUN_JSON[damage]
    (broken / "run.json").unlink()
    if data is not None:
        (broken / "run.json").write_bytes(data)
    said = resume(broken, 6)
    assert f"{broken / 'run.json'}: it cannot be read" in said
    assert len(json.loads((broken / "run.json").read_text())["resumed"]) == 1
    if data is not None:
        assert "it is kept as run.json.damaged-1" in said and (broken / "run.json.damaged-1").read_bytes() == data
    resume(whole := shutil.copytree(finished, broken.parent / "whole"), 6)
    assert fingerprint(broken) == fingerprint(whole)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def flip_a_digit(path):
    data = bytearray(path.read_bytes())
    last = max(i for i, byte in enumerate(data) if chr(byte).isdigit())
    data[last] ^= 1
    path.write_bytes(data)


TABLES = {
    "it is missing": lambda path: path.unlink(),
    "it is cut off": cut,
    "it was altered: its hash differs": flip_a_digit,
}


@pytest.mark.parametrize("name", ["metrics.csv", "timing.csv"])
@pytest.mark.parametrize("problem", TABLES)
def test_rows_that_are_lost_are_said_and_kept_aside(name, problem, broken, finished):
    TABLES[problem](broken / name)
    before = (broken / name).read_bytes() if (broken / name).exists() else None
    said = resume(broken, 6)
    assert f"{broken / name}: {problem}" in said and said.index(problem) < said.index("resumed at iteration 4")
    if before is not None:
        assert f"it is kept as {name}.damaged-1" in said and (broken / f"{name}.damaged-1").read_bytes() == before
    rows = (broken / name).read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["iteration", "5", "6"]
    resume(whole := shutil.copytree(finished, broken.parent / "whole"), 6)
    kept = fingerprint(broken) | {"metrics": ""}
    assert kept == fingerprint(whole) | {"metrics": ""}


def test_a_table_that_an_older_checkpoint_has_no_hash_of_is_still_read_through(broken, monkeypatch):
    monkeypatch.setattr("rnd.checkpoint.metadata.digest", lambda path, size=None: (path.stat().st_size, None))
    path = broken / "metrics.csv"
    resume(broken, 5)
    data = bytearray(path.read_bytes())
    data[-2:] = b"x\n"
    path.write_bytes(data)
    assert f"{path}: it is no table" in resume(broken, 6)


def test_missing_checkpoints_are_said_and_the_rows_kept(broken, finished):
    shutil.rmtree(broken / "checkpoints")
    before = (broken / "metrics.csv").read_bytes()
    said = resume(broken)
    assert f"{broken / 'checkpoints'} has no checkpoint: the run begins again" in said
    assert "metrics.csv: it has rows, but there is no checkpoint; it is kept as metrics.csv.damaged-1" in said
    assert said.index("it is kept as") < said.index("run folder:")
    assert (broken / "metrics.csv.damaged-1").read_bytes() == before
    assert iterations(broken) == [1, 2, 3, 4] and fingerprint(broken) == fingerprint(finished)


def test_nothing_has_changed_when_it_is_said(broken, monkeypatch):
    """The run stops where the networks would be built: everything was said, nothing was renamed."""
    cut(broken / "metrics.csv")
    (broken / "run.json").write_text("[")
    cut(broken / "checkpoints" / "000000004" / "state.json")
    before = contents(broken)

    def stop(*_):
        raise RunError("stopped here")

    monkeypatch.setattr(run, "Trainer", stop)
    with pytest.raises(RunError, match="stopped here"):
        resume(broken, 6)
    assert {k: v for k, v in contents(broken).items() if not k.endswith("lock")} == {
        k: v for k, v in before.items() if not k.endswith("lock")
    }


def test_a_config_that_differs_from_the_checkpoint_is_said(broken):
    config = json.loads((broken / "config.json").read_text())
    config["lr"] = 2e-3
    (broken / "config.json").write_text(json.dumps(config))
    assert "config.json differs from the checkpoint: lr 0.001 -> 0.002" in resume(broken, 6)
    assert "differs from the checkpoint" not in resume(broken, 8)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frames", "many"),
        ("frames", 10**400),
        ("frames", None),
        ("lr", [1]),
        ("lr", float("nan")),
        ("env", 5),
        ("env", {"id": 7}),
        ("env", {"num_envs": True}),
        ("policy", {"mlp": 1}),
        ("bonus_options", []),
        ("bonus_options", {"features": "64"}),
        ("policy_options", {"width": 1.5}),
        ("minibatches", 0),
        ("value_heads", True),
        ("checkpoint", None),
        ("unknown", 1),
    ],
)
@pytest.mark.parametrize("command", ["resume", "report"])
def test_a_config_of_wrong_types_is_one_line_that_names_it(command, field, value, broken):
    config = json.loads((broken / "config.json").read_text())
    config[field] = config[field] | value if isinstance(value, dict) and isinstance(config.get(field), dict) else value
    (broken / "config.json").write_text(json.dumps(config))
    code, said = rnd(command, broken)
    assert code == (2 if command == "resume" else 0), said
    if command == "resume":
        assert f"{broken / 'config.json'}" in said and said.count("\n") == 1
    elif field != "minibatches" and value == value:  # a number that cannot be trained with can still be reported
        assert "config.json is not understood" in said


def test_temporary_files_of_a_killed_run_are_removed_and_no_others(broken):
    ours = [".rooms.json.abcdefgh.tmp", "rooms.jsonabcdefgh.tmp", ".run.json.x1_2y3z4.tmp"]
    others = ["notes.tmp", ".report.html.abcdefgh.tmp"]  # a report may be writing now
    for name in (*ours, *others):
        (broken / name).write_text("half")
    resume(broken, 5)
    assert sorted(path.name for path in broken.rglob("*.tmp")) == sorted(others)
