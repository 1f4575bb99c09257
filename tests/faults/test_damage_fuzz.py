"""A run folder with damage of every kind, at fixed random places. Resuming it is exact, or says in one line which file
is wrong; a report of it is written, or refused in one line. Never a traceback, a hang, or a silent difference."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_helpers import contents, fingerprint, resume, rnd

SEED, MUTATIONS, QUICK = 5, 200, 25
LONGEST = 10
"""Seconds of computing that a command may take; one that waits for ever is stopped by an alarm."""
FRAMES = str(6 * 32)


def files_of(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file() and path.name != "lock")


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def extend(path: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randrange(1, 100)))


def fill(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice([0, 10, 10_000])))


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def fifo(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path, rng: random.Random) -> None:
    """To a copy outside, to itself, to a device or to nothing."""
    outside = path.parents[-2] / rng.choice(["dev/zero", "nowhere"])
    path.unlink()
    path.symlink_to(rng.choice([outside, path, Path("/dev/full")]))


def retype(path: Path, rng: random.Random) -> None:
    """Another value at a random place of a JSON file; other files are overwritten with JSON."""
    values = [None, True, -1, 0, 2**70, 1.5, "", "x" * 1000, [], {}, [[]], {"$tensor": "x"}, float("inf")]
    try:
        data = json.loads(path.read_bytes())
    except ValueError:
        data = {}
    at = data
    while isinstance(at, dict | list) and at:
        key = rng.choice([*at]) if isinstance(at, dict) else rng.randrange(len(at))
        if not isinstance(at[key], dict | list) or not at[key] or rng.random() < 0.2:
            at[key] = rng.choice(values)
            break
        at = at[key]
    path.write_text(json.dumps(data))


def remove_folder(path: Path, rng: random.Random) -> None:
    shutil.rmtree(path.parent if path.parent.name != "run" else path.parent / "checkpoints")


def swap(path: Path, rng: random.Random) -> None:
    """The contents of another file of the run."""
    path.write_bytes(rng.choice(files_of(next(p for p in path.parents if p.name == "run"))).read_bytes())


KINDS: list[Callable[[Path, random.Random], None]] = [
    *(flip, cut, extend, fill, delete, folder, fifo, link, retype, retype, remove_folder, swap)
]


def damage(number: int, run: Path) -> tuple[str, Path]:
    """Mutation `number`: every kind in turn, on files that are drawn."""
    rng = random.Random(SEED * 100_000 + number)
    kind = KINDS[number % len(KINDS)]
    files = [path for path in files_of(run) if path.stat().st_size]
    if kind is retype:
        files = [path for path in files if path.suffix == ".json"]
    path = rng.choice(files)
    kind(path, rng)
    return kind.__name__, path


def verdict(run: Path, path: Path, whole: dict[str, str]) -> str | None:
    """What is wrong with how a damaged run was resumed and reported, or None."""
    for command in (["report", run], ["resume", run, "--frames", FRAMES]):
        begun = time.process_time()
        signal.alarm(120)
        try:
            code, said = rnd(*command)
        except Exception:
            return traceback.format_exc()[-800:]
        finally:
            signal.alarm(0)
        if time.process_time() - begun > LONGEST:
            return f"{command[0]} took {time.process_time() - begun:.0f} s"
        named = path.name in said or path.parent.name in said
        if code == 0 and command[0] == "resume":
            found = fingerprint(run)
            metrics = found["metrics"] == whole["metrics"]
            if {**found, "metrics": ""} != {**whole, "metrics": ""} and "differs from the checkpoint" not in said:
                return f"another state: {said}"
            if not metrics and not named:
                return f"other metrics, and nothing is said: {said}"
        if code and (code not in (1, 2) or not named or "Traceback" in said or len(said.splitlines()) > 4):
            return f"{command[0]}, code {code}: {said}"
    return None


def fuzz(finished: Path, tmp_path: Path, numbers: range) -> None:
    whole = shutil.copytree(finished, tmp_path / "whole")
    resume(whole, 6)
    expected, wrong = fingerprint(whole), []
    for number in numbers:
        around = tmp_path / f"around-{number}"
        run = shutil.copytree(finished, around / "run")
        (around / "other").write_text("left alone")
        kind, path = damage(number, run)
        problem = verdict(run, path, expected)
        if problem is None and [*contents(around / "other").values()] != [b"left alone"]:
            problem = "a file outside has changed"
        if problem:
            wrong.append(f"{number}: {kind} {path.relative_to(run)}: {problem}")
        shutil.rmtree(around)
    assert not wrong, "\n".join(wrong)


def test_damaged_runs(finished, tmp_path):
    fuzz(finished, tmp_path, range(QUICK))


@pytest.fixture(autouse=True)
def no_hang():
    def late(*_: object) -> None:
        raise AssertionError("no answer")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.long
def test_200_damaged_runs(finished, tmp_path):
    fuzz(finished, tmp_path, range(MUTATIONS))
