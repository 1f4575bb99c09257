"""Somebody else's training script beside `rnd train`: frames per second of both, on one machine in the same minutes.

    python benchmarks/beside_others.py --script FOLDER/ppo_rnd_envpool.py -- --num-envs 128
    python benchmarks/beside_others.py --script FILE --python FOLDER/bin/python --ours "montezuma --overlap" --json

What follows `--` goes to the script. The two take turns: ours, theirs, ours, theirs. Each turn is a process of its own,
which is ended with all that it has started. Its clock starts some seconds after the first sign of training: a row of
our run folder, or a line of the script that fits --pattern. So imports and compilation do not count.

--pattern has a group `steps`, the agent steps so far, or `rate`, agent steps per second, or both, as CleanRL's scripts
print them. Steps are timed here and count, where there are any: CleanRL's rate is a mean since its start. With both, a
line with the rate is the end of an update, and the newest steps before it count.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from rnd.bench.envs import RATIO
from rnd.bench.progress import Progress
from rnd.cli import parse, version
from rnd.commands.train import StartFlags, read_flags
from rnd.config import Config
from rnd.config.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from rnd.envs.registry import cores
from rnd.foundation.console import printable, say
from rnd.foundation.errors import RunError, UserError
from rnd.jobs.process import last_line, start_process
from rnd.metrics.metrics import read_csv

POLL = 0.5  # seconds between two looks at a program that trains: rare, so that they take no time from it
GRACE = 10.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Options:
    """What is measured. Arguments of the script follow after --."""

    script: str
    """The other training script."""
    python: str = sys.executable
    """The Python that runs it: that of its own virtual environment."""
    ours: str = "montezuma"
    """What follows `rnd train`."""
    rounds: PositiveInt = 3
    """Turns of each."""
    seconds: PositiveFloat = 60.0
    """Measured seconds of a turn; an iteration that has begun is finished."""
    warm_up: NonNegativeFloat = 30.0
    """Seconds from the first sign of training to the start of the clock."""
    limit: PositiveFloat = 1200.0
    """Seconds without a sign of training after which a turn is given up."""
    pattern: str = r"global_step=(?P<steps>\d+)|SPS: *(?P<rate>\d+)"
    """Regular expression of the script's lines, with a group `steps`, `rate` or both."""
    frames_per_step: PositiveInt = 4
    """Raw frames of an agent step of the script."""
    json: bool = False
    """Print JSON instead of a table."""


class Mark(NamedTuple):
    """A moment in training, and the frames until then."""

    seconds: float
    frames: float


class Ours:
    """`rnd train`. Its marks are the rows of its run folder, whose seconds add up to its whole time."""

    no_marks = "it has finished no iteration"  # what is wrong then

    def __init__(self, config: Config, folder: Path):
        self._run, log = folder / "run", folder / "log"
        self.last_line = partial(last_line, log)
        with log.open("wb") as output:
            config = replace(config, out=str(folder), name="run")
            self.process = start_process(config, folder / "config.json", output, os.environ)

    def marks(self) -> list[Mark]:
        """So far, in order."""
        timing, metrics = (read_csv(self._run / f"{table}.csv") for table in ("timing", "metrics"))
        return [*map(Mark, accumulate(timing.get("seconds", [])), metrics.get("frames", []))]


class Theirs:
    """The other script. Its lines are timed as they come. Were this program killed, the broken pipe would end it."""

    def __init__(self, command: list[str], pattern: re.Pattern[str], frames_per_step: int, folder: Path):
        self.pattern, self.frames_per_step = pattern, frames_per_step
        self.no_marks = f"no line fits --pattern {pattern.pattern!r}"
        self._counted, self._rated = list[Mark](), list[Mark]()  # by its steps; by its rates from line to line
        self._frames, self._line = 0.0, "no output"
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with io.TextIOWrapper(self.process.stdout, errors="replace") as lines:  # \r ends a line too: progress bars
            for line in lines:
                self._line = line.strip() or self._line
                for match in self.pattern.finditer(line):
                    with suppress(ValueError):  # a group that is no number
                        self.see(time.monotonic(), **match.groupdict())

    def see(self, now: float, steps: str | None = None, rate: str | None = None, **_: str | None) -> None:
        """Take in one match."""
        if steps is not None:
            self._frames = float(steps) * self.frames_per_step
        if rate is None and "rate" in self.pattern.groupindex:
            return  # in the middle of an update
        if self._frames > (self._counted[-1].frames if self._counted else 0):
            self._counted.append(Mark(now, self._frames))
        if rate is not None:
            since, frames = self._rated[-1] if self._rated else (now, 0.0)
            self._rated.append(Mark(now, frames + float(rate) * self.frames_per_step * (now - since)))

    def marks(self) -> list[Mark]:
        return list(self._counted or self._rated)

    def last_line(self) -> str:
        if self.process.poll() is not None:
            self._reader.join(GRACE)  # it may not have come to the end yet
        return self._line


Program = Ours | Theirs


def turn(name: str, begin: Callable[[Path], Program], options: Options) -> float:
    """Frames per second of a program in one turn. It is ended then."""
    with tempfile.TemporaryDirectory(prefix="rnd-beside-", ignore_cleanup_errors=True) as folder:
        program = begin(Path(folder))
        try:
            seen, last = 0, time.monotonic()
            while not (found := speed(marks := program.marks(), options.warm_up, options.seconds)):
                if len(marks) != seen:
                    seen, last = len(marks), time.monotonic()
                if program.process.poll() is not None or time.monotonic() - last > options.limit:
                    raise RunError(f"{name}: {why_given_up(program, options)}")
                time.sleep(POLL)
            return found
        finally:
            end(program.process)


def speed(marks: Sequence[Mark], warm_up: float, seconds: float) -> float:
    """Frames per second in the `seconds` or more after the warm-up; 0 until these are over."""
    window = [mark for mark in marks if mark.seconds >= marks[0].seconds + warm_up]
    if not window or window[-1].seconds - window[0].seconds < seconds:
        return 0.0
    first, last = window[0], window[-1]
    return (last.frames - first.frames) / (last.seconds - first.seconds)


def why_given_up(program: Program, options: Options) -> str:
    code, trained, said = program.process.poll(), program.marks(), f"its last line: {program.last_line()}"
    if code:
        return f"it ended with exit code {code}; {said}"
    if code == 0 and trained:
        return f"it ended before the {options.warm_up + options.seconds:g} s of its turn; give it more steps"
    when = f"within {options.limit:g} s (--limit)" if code is None else "until its end"
    return f"{'it trains no longer, nothing new' if trained else program.no_marks} {when}; {said}"


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it has started: first with SIGTERM, then with SIGKILL."""
    try:
        send(signal.SIGTERM, process)
    finally:
        send(signal.SIGKILL, process)


def send(number: int, process: subprocess.Popen[bytes]) -> None:
    """Send a signal to a program and all that it has started, and wait for the end of all, at most GRACE seconds."""
    until = time.monotonic() + GRACE
    with suppress(ProcessLookupError, PermissionError):  # nobody is there; macOS says the second
        os.killpg(process.pid, number)
        while time.monotonic() < until:
            time.sleep(0.05)
            process.poll()  # one that has ended is there until somebody asks
            os.killpg(process.pid, 0)


def measure(ours: Callable[[Path], Program], theirs: Callable[[Path], Program], options: Options) -> list[list[float]]:
    """Frames per second of both, round by round."""
    programs, progress = {"rnd train": ours, Path(options.script).name: theirs}, Progress(2 * options.rounds)
    for ending in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: the program that has its turn is ended too
        if signal.getsignal(ending) != signal.SIG_IGN:  # nohup
            signal.signal(ending, signal.default_int_handler)

    def measured(i: int, name: str) -> float:
        play = partial(turn, name, programs[name], options)
        return progress(f"round {i + 1}, {name}", play, lambda speed: f"{speed:,.0f} frames/s")

    return [[measured(i, name) for name in programs] for i in range(options.rounds)]


def config_of(ours: str) -> Config:
    """What `rnd train` makes of these arguments."""
    try:
        return read_flags(StartFlags, shlex.split(ours), "rnd train", "What --ours may hold.")[1]
    except (UserError, ValueError) as error:
        raise UserError(f"--ours {ours!r}: {error}") from None


def checked_pattern(text: str) -> re.Pattern[str]:
    with suppress(re.error):
        pattern = re.compile(text)
        if {"steps", "rate"} & {*pattern.groupindex}:
            return pattern
    raise UserError(f"--pattern {text!r} is no regular expression with a group (?P<steps>...) or (?P<rate>...)")


def versions(python: str) -> str:
    """Versions of the script's Python and packages."""
    code = """import sys; from importlib import metadata
print("Python", sys.version.split()[0], end="")
for one in metadata.distributions():
    if one.metadata["Name"] in ("torch", "jax", "envpool", "ale-py", "gymnasium", "gym", "numpy"):
        print(",", one.metadata["Name"], one.version, end="")"""
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout or "unknown"


def report(rounds: list[list[float]], options: Options, console: Console) -> None:
    """Print the table, or the JSON."""
    ours, theirs = zip(*rounds, strict=True)
    ratios = [one / other for one, other in rounds]
    machine = {"cores": cores(), "ours": version().replace("\n", ", "), "theirs": versions(options.python)}
    medians = {"ours": statistics.median(ours), "theirs": statistics.median(theirs), "ratio": statistics.median(ratios)}
    if options.json:
        print(json.dumps({**medians, "rounds": {"ours": ours, "theirs": theirs}, "machine": machine}, indent=2))
        return
    table = Table("program", "frames/s", *(f"round {i + 1}" for i in range(options.rounds)))
    for name, speeds in ((f"rnd train {options.ours}", ours), (Path(options.script).name, theirs)):
        table.add_row(name, *(f"{speed:,.0f}" for speed in (statistics.median(speeds), *speeds)))
    table.add_row("ratio", *(f"{ratio:.2f}" for ratio in (medians["ratio"], *ratios)))
    console.print(table)
    say(console, RATIO)
    say(console, "\n".join(f"{name}: {text}" for name, text in machine.items()))


def main(arguments: list[str]) -> int:
    """The exit code."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    try:
        options = parse(Options, arguments[:at], prog="beside_others.py", description=str(__doc__))
        script, pattern = Path(options.script).resolve(), checked_pattern(options.pattern)
        if not script.is_file():
            raise UserError(f"there is no script {options.script}; --script names the file of a training script")
        if not (python := shutil.which(options.python)):
            raise UserError(f"there is no program {options.python}; --python names the Python of the script")
        command = [str(Path(python).absolute()), str(script), *arguments[at + 1 :]]  # a link stays: a venv is one
        theirs = partial(Theirs, command, pattern, options.frames_per_step)
        report(measure(partial(Ours, config_of(options.ours)), theirs, options), options, Console())
    except (UserError, RunError, OSError) as error:
        print(f"beside_others: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt:
        print("beside_others: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
