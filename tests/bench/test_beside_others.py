"""benchmarks/beside_others.py: how another program's lines become frames per second, and that no process is left."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers import quiet
from rnd.foundation.errors import RunError

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, time
print("flags", sys.argv[1:])
begun, steps = time.time() - 100, 0  # its own rate, a mean since then, is far too low
while True:
    for _ in range(2):
        time.sleep(0.02)
        steps += 1_000
        print(f"global_step={steps}, episodic_return=0")
    print("SPS:", int(steps / (time.time() - begun)))
"""
FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(f"{__file__}.pids", "a") as file:
    file.write(f"{os.getpid()} ")
depth = int(sys.argv[1])
if depth:
    subprocess.Popen([sys.executable, __file__, str(depth - 1)])
while True:
    time.sleep(0.02)
    if not depth:
        print("SPS: 10", flush=True)
"""
"""A program, its child and its grandchild: they ignore SIGTERM, and the last one prints."""


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("beside_others")
    monkeypatch.setattr(module, "POLL", 0.02)
    monkeypatch.setattr(module, "GRACE", 0.5)
    return module


@pytest.fixture(autouse=True)
def handlers():
    """Those of this process are as before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def script(tmp_path):
    def written(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return written


def options(beside, path: Path, **changes):
    return beside.Options(str(path), **{"rounds": 1, "seconds": 0.3, "warm_up": 0.1, "limit": 5.0} | changes)


def theirs(beside, given, *flags: str):
    """What begins the script."""
    command = [sys.executable, given.script, *flags]
    return partial(beside.Theirs, command, beside.checked_pattern(given.pattern), given.frames_per_step)


def failure(beside, path: Path, **changes) -> str:
    given = options(beside, path, **changes)
    with pytest.raises(RunError) as error:
        beside.turn("script.py", theirs(beside, given), given)
    assert "\n" not in str(error.value)
    return str(error.value)


def alive(pid: int) -> bool:
    """Runs: one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_clock_starts_after_the_warm_up(beside):
    marks = [beside.Mark(*mark) for mark in ((50, 1_000), (51, 1_010), (52, 1_020), (54, 1_220), (57, 1_500))]
    assert beside.speed(marks, 2, 2) == (1_500 - 1_020) / 5  # 54 - 52 is enough, and what came later counts too
    assert beside.speed(marks[:4], 2, 2) == 100
    assert beside.speed(marks[:4], 2, 2.5) == beside.speed(marks[:2], 2, 2) == beside.speed([], 0, 1) == 0


@pytest.mark.parametrize(
    ("pattern", "lines", "wanted"),
    [
        (None, "global_step=100\nSPS: 7\nglobal_step=150\nglobal_step=300\nSPS: 7\n", [(1, 400), (4, 1200)]),
        (None, "SPS: 100\nSPS:200\na SPS: 300 b\n", [(0, 0), (1, 800), (2, 2000)]),
        (None, "SPS: 100\rSPS: 200\r", [(0, 0), (1, 800)]),  # a progress bar
        (None, "SPS: 9\nglobal_step=1\nSPS: 9\nSPS: 9\n", [(2, 4)]),  # a line without new steps is no mark
        (r"step (?P<steps>\d+)", "step 1\nanother line\nstep 2\n", [(0, 4), (1, 8)]),
        (r"fps (?P<rate>\S+)", "fps 10\nfps -\nfps 20", [(0, 0), (2, 160)]),
    ],
)
def test_lines_become_frames(beside, monkeypatch, pattern, lines, wanted):
    """By a clock that gives 0, 1, 2, ...: one for every match."""
    process = SimpleNamespace(stdout=io.BytesIO(lines.encode()), poll=lambda: 0)
    clock = itertools.count()
    monkeypatch.setattr(beside, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(beside.subprocess, "Popen", lambda *_, **__: process)
    program = beside.Theirs([], beside.checked_pattern(pattern or beside.Options.pattern), 4, Path())
    assert program.last_line() == lines.replace("\r", "\n").split("\n")[-2 if lines[-1] in "\r\n" else -1]
    assert program.marks() == wanted


def test_both_are_measured(beside, script, capsys):
    """The whole program, with a run of ours; what the script prints as its rate is a small part of its speed."""
    flags = ["--rounds", "1", "--seconds", "0.3", "--warm-up", "0.1", "--json"]
    ours = "CartPole-v1 --threads 1 --bonus none --env.num-envs 2 --rollout-steps 8 --epochs 1 --minibatches 1"
    assert beside.main(["--script", str(script(SCRIPT)), "--ours", ours, *flags, "--", "--num-envs", "8"]) == 0
    out, progress = capsys.readouterr()
    result = json.loads(out)
    assert result["rounds"] == {"ours": [result["ours"]], "theirs": [result["theirs"]]}
    assert result["ours"] > 0 and result["ratio"] == pytest.approx(result["ours"] / result["theirs"])
    assert 20_000 < result["theirs"] < 4 * 1_000 / 0.02
    assert result["machine"]["theirs"].startswith("Python 3") and "torch" in result["machine"]["theirs"]
    turns = [line.partition(" ... ")[0] for line in progress.splitlines()]
    assert turns == ["1 of 2: round 1, rnd train", "2 of 2: round 1, script.py"]


def test_the_table_and_the_json(beside, script, capsys):
    speeds = [[300.0, 100.0], [500.0, 250.0], [450.0, 100.0]]
    console = quiet()
    beside.report(speeds, options(beside, script(""), rounds=3), console)
    said = console.file.getvalue()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines() if "│" in line]
    assert rows == [
        ["rnd train montezuma", "450", "300", "500", "450"],
        ["script.py", "100", "100", "250", "100"],
        ["ratio", "3.00", "3.00", "2.00", "4.50"],
    ]
    assert "it is not the quotient of the two speeds" in said and f"cores: {beside.cores()}" in said
    beside.report(speeds, options(beside, script(""), rounds=3, json=True), console)
    result = json.loads(capsys.readouterr().out)
    assert (result["ours"], result["theirs"], result["ratio"]) == (450, 100, 3)
    assert result["rounds"]["theirs"] == [100, 250, 100]


def test_a_script_that_fails_is_told_with_its_last_line(beside, script):
    said = failure(beside, script("print('SPS: 3', flush=True); raise ValueError('no such\\x07 game')"))
    assert said == "script.py: it ended with exit code 1; its last line: ValueError: no such\x07 game"
    missing = failure(beside, ROOT / "nowhere.py")
    assert "exit code 2" in missing and "No such file" in missing


def test_lines_that_do_not_fit_are_told(beside, script):
    said = failure(beside, script("print('steps: 12')"))
    assert said.startswith("script.py: no line fits --pattern 'global_step=(?P<steps>")
    assert said.endswith("until its end; its last line: steps: 12")
    endless = "import time\nwhile True: print('12'); time.sleep(0.05)"
    assert failure(beside, script(endless), limit=0.4).endswith("within 0.4 s (--limit); its last line: 12")


def test_a_script_that_trains_no_longer_is_told(beside, script):
    stuck = "import time\nprint('SPS: 1'); time.sleep(60)"
    assert failure(beside, script(stuck), limit=0.4).startswith("script.py: it trains no longer, nothing new within")
    assert failure(beside, script("print('SPS: 1')")).endswith("ended before the 0.4 s of its turn; give it more steps")


def test_our_run_that_fails_is_told(beside, tmp_path, monkeypatch):
    config = beside.config_of("CartPole-v1")
    monkeypatch.setattr(beside, "start_process", lambda config, path, output, environment: failing(output))

    def failing(output):
        output.write(b"rnd: there is no such game\n")
        return beside.subprocess.Popen(["false"], stdin=beside.subprocess.PIPE, start_new_session=True)

    with pytest.raises(RunError, match="rnd train: it ended with exit code 1; its last line: rnd: there is no such"):
        beside.turn("rnd train", partial(beside.Ours, config), options(beside, tmp_path))


def family(path: Path) -> list[int]:
    """Processes of FAMILY that have begun."""
    file = path.with_name(f"{path.name}.pids")
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def test_nothing_is_left_after_a_turn(beside, script):
    given = options(beside, script(FAMILY))
    assert beside.turn("script.py", theirs(beside, given, "2"), given) > 0
    pids = family(Path(given.script))
    assert len(pids) == 3 and not [pid for pid in pids if alive(pid)]


def test_nothing_is_left_after_an_interrupt(beside, script, monkeypatch, capsys):
    path = script(FAMILY)
    given = options(beside, path)
    monkeypatch.setattr(beside, "Ours", lambda config, folder: theirs(beside, given, "2")(folder))

    def interrupt():
        while len(family(path)) < 3:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=interrupt, daemon=True).start()
    assert beside.main(["--script", str(path), "--ours", "CartPole-v1", "--seconds", "60"]) == 130
    assert capsys.readouterr().err.endswith("\nbeside_others: interrupted\n")
    assert not [pid for pid in family(path) if alive(pid)]


def test_a_program_may_end_by_itself(beside, script, tmp_path, monkeypatch):
    """SIGTERM comes first, and time to react to it."""
    monkeypatch.setattr(beside, "GRACE", 5.0)
    polite = """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(0.2)
    sys.exit(pathlib.Path(__file__).with_name("saved").touch())
signal.signal(signal.SIGTERM, save)
while True:
    time.sleep(0.02)
    print("SPS: 10")
"""
    given = options(beside, script(polite))
    begun = time.monotonic()
    assert beside.turn("script.py", theirs(beside, given), given) > 0
    assert (tmp_path / "saved").exists() and time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--script", "nowhere.py"], "there is no script nowhere.py; --script names"),
        (["--python", "no-python"], "there is no program no-python; --python names"),
        (["--pattern", "fps"], "--pattern 'fps' is no regular expression with a group"),
        (["--pattern", "(?P<rate>"], "--pattern '(?P<rate>' is no regular expression with a group"),
        (["--ours", "montezma"], "--ours 'montezma': "),
        (["--ours", "montezuma --seeds 1-3"], "--ours 'montezuma --seeds 1-3': unknown flag --seeds"),
        (["--ours", "'montezuma"], '--ours "\'montezuma": No closing quotation'),
        (["--round", "2"], "unknown flag --round; nearest: --rounds"),
        ([], "--script"),
    ],
)
def test_wrong_flags_are_told_in_one_line(beside, script, capsys, flags, said):
    named = [] if not flags or "--script" in flags else ["--script", str(script(SCRIPT))]
    assert beside.main([*named, *flags]) == 2
    # packages that are installed may say something before it
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("beside_others: "))
    assert line.startswith(f"beside_others: {said}" if flags else "beside_others: ")
    assert said in line
