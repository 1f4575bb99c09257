"""Random command lines from the real flags, and a process that runs many of them quickly."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import random
import resource
import signal
import sys
import time
import types
import typing
from collections.abc import Iterator
from pathlib import Path

from rnd.config.components import resolve
from rnd.config.presets import preset

COMMANDS: dict[str, tuple[list[str], str, list[str]]] = {
    "train": (["--env.num-envs", "4", "--rollout-steps", "4", "--frames", "64", "--env.workers", "0", "--device", "cpu",
               "--bonus-options.random-steps", "1", "--writers", "none"], "rnd.config:Config",
              ["CartPole-v1", "CartPole-v1", "rnd/DeepSea-4", "rnd/NoisyTV", "MiniGrid-Empty-5x5-v0", "freeway",
               "montezumma", "math:pi", ":b", "", "Ö"]),
    "resume": ([], "rnd.commands.resume:Options", ["run", "run", "missing", "file", ".", ""]),
    "report": ([], "rnd.commands.report:Options", ["run", "run", "missing", "file", "."]),
    "watch": ([], "rnd.report.options:WatchOptions", ["run", "run", "missing", "file"]),
    "export": ([], "rnd.commands.export:Options", ["run", "run", "missing", "file"]),
    "import": ([], "rnd.commands.import_:Options", ["parts", "parts", "missing", "file", "run"]),
    "paper": (["--scale", "0.0001", "--dry-run"], "rnd.commands.paper:Options", ["figure3", "figure33", "table1"]),
    "paper prediction-errors": (["--seeds", "1", "--steps", "2"], "rnd.paper.prediction_errors:Options", []),
    "paper figure2": (["--data", "missing"], "rnd.paper.figure2:Options", []),
    "bench envs": (["--num-envs", "2", "--seconds", "0.1", "--rounds", "1", "--workers", "1", "--frames", "9"],
                   "rnd.bench.envs:Options", []),
    "bench learner": (["--num-envs", "4", "--rollout-steps", "2", "--repeats", "1", "--precision", "float32"],
                      "rnd.bench.learner:Options", []),
}  # fmt: skip
"""Command: flags that keep it short, where its flags are declared, and names to give it."""

NUMBERS = ("0", "-1", "1", "2", "4", "8", "16", "0.5", "1", "2", "4", "0.5", "0.1", "1e-3", "3", "2.5", "-0.0",
           "nan", "inf", "-inf", "1e308", "1e-320", "2147483648", "9" * 25, "9" * 400, "9" * 5000, "1_0",
           "٣", "0x10", "", "many", "None", "--", "-")  # fmt: skip
TEXTS = ("", "x", "new", "file", "a" * 300, "../x", "Ö", "math:pi", ":b", ".:x", "os:getcwd", "--help", "auto", "15MB",
         "0B", "-1", "9" * 400, "rnd", "cnn", "mlp", "gru", "none", "count", "cuda:99", "cpu", "\udcff")  # fmt: skip
VARIABLES = ({}, {}, {}, {}, {}, {"COLUMNS": "5"}, {"COLUMNS": "x"}, {"PYTHONIOENCODING": "ascii"}, {"WORLD_SIZE": "2"},
             {"RANK": "3"}, {"LOCAL_WORLD_SIZE": "0"}, {"WORLD_SIZE": "-1"}, {"RANK": "a"}, {"LC_ALL": "C"},
             {"HOME": "/nowhere"}, {"TERM": "dumb"}, {"NO_COLOR": "1"})  # fmt: skip
SHORT = {"--frames", "--epochs", "--seconds", "--rounds", "--repeats", "--seeds", "--steps", "--episodes"}
"""Flags whose large values only make a command long."""


def command_lines(seed: int, count: int) -> list[tuple[list[str], dict[str, str]]]:
    """Arguments and environment variables: the same for the same seed."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        command = draw.choice([*COMMANDS, "train", "train", "train"])
        short, where, names = COMMANDS[command]
        module, name = where.split(":")
        declared = list(fields(getattr(importlib.import_module(module), name)))
        if command == "train":  # with the options of its bonus and its policy
            declared = list(fields(resolve(preset("CartPole-v1"))))
        arguments = [*command.split(), *draw.choices(names, k=draw.choice([0, *[1] * 9, 2]) if names else 0), *short]
        for flag, hint in draw.sample(declared, min(len(declared), draw.choice([0, 1, 1, 2, 3]))):
            arguments += given(draw, flag, hint)
        if draw.random() < 0.1:
            arguments.insert(draw.randrange(len(arguments) + 1), draw.choice([*TEXTS, "--version", "-h", "-x", "--lr"]))
        found.append((arguments, draw.choice(VARIABLES)))
    return found


def fields(group: typing.Any, prefix: str = "--") -> Iterator[tuple[str, typing.Any]]:
    """Flags and types of a dataclass (or of an instance), and of those in it."""
    hints = typing.get_type_hints(group if isinstance(group, type) else type(group))
    for field in dataclasses.fields(group):
        flag, hint = prefix + field.name.replace("_", "-"), hints[field.name]
        if dataclasses.is_dataclass(getattr(group, field.name, None)):
            yield from fields(getattr(group, field.name), flag + ".")
        else:
            yield flag, hint


def given(draw: random.Random, flag: str, hint: typing.Any) -> list[str]:
    """A flag with a value: often of its type, sometimes of another, sometimes none."""
    kind = draw.random()
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return given(draw, flag, parts[0])
    if hint is bool:
        return [flag if kind < 0.5 else "--no-" + flag[2:]] if kind < 0.9 else [flag, "maybe"]
    if kind < 0.05:
        return [flag]
    if typing.get_origin(hint) is tuple:
        return [flag, *(value for _ in range(draw.randrange(4)) for value in given(draw, flag, parts[0])[1:])]
    if typing.get_origin(hint) is typing.Literal and kind < 0.8:
        return [flag, str(draw.choice(parts))]
    values = NUMBERS if (hint in (int, float)) == (kind < 0.9) else TEXTS
    if flag in SHORT:
        values = [value for value in values if value < "3" and value.isalnum()]
    value = draw.choice(values)
    return [f"{flag}={value}"] if kind < 0.2 else [flag, value]


class Answer(typing.NamedTuple):
    """What a command line came to. `code` is None where it had to be killed."""

    code: int | None
    output: str
    seconds: float
    """Seconds of the processor: the machine may be busy with other things."""

    def problem(self) -> str:
        """What is wrong with it; empty where nothing is."""
        if "Traceback (most recent call last)" in self.output:
            return "a traceback"
        if self.code not in (0, 1, 2) and not (self.code is None and "run folder: " in self.output):
            return f"exit code {self.code}" if self.code is not None else "no answer"
        if self.code in (1, 2) and "rnd: " not in self.output:
            return f"exit code {self.code} without a word"
        return f"{self.seconds:.0f} s" if self.seconds > LIMIT and "run folder: " not in self.output else ""


PRELOADED = ("torch._dynamo", "cv2", "gymnasium", "matplotlib.pyplot", "minigrid", "tyro", "rnd.bench.envs", "rnd.run",
             "rnd.bench.learner", "rnd.commands.paper", "rnd.checkpoint.export", "rnd.checkpoint.parts",
             "rnd.report.page", "rnd.report.watch", "rnd.bonus.rnd", "rnd.models.policy.gru")  # fmt: skip
LIMIT = 10.0
"""Seconds in which a command answers. A run that has begun is an answer, and is killed."""


def wait(pid: int, output: Path, *, busy: float = 6.0) -> Answer:
    """Wait for a child, and kill its process group when its time is up: `busy` times the limit by the wall clock."""
    begun = time.monotonic()
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            text = output.read_text(errors="replace")
            code = os.waitstatus_to_exitcode(status)
            return Answer(None if code == -signal.SIGKILL else code, text, usage.ru_utime + usage.ru_stime)
        spent = time.monotonic() - begun
        if spent > busy * LIMIT or (spent > LIMIT and b"run folder: " in output.read_bytes()):
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.01)


def serve() -> None:
    """Run the command lines on standard input, each in a fork of this process, which has imported everything."""
    for name in PRELOADED:
        importlib.import_module(name)
    from rnd import cli

    for line in sys.stdin:
        arguments, variables, cwd = json.loads(line)
        output = Path(cwd, "output")
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.chdir(cwd)
            os.environ.update(variables)
            sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor in (1, 2):
                os.dup2(sink, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            encoding = variables.get("PYTHONIOENCODING", "utf-8")
            sys.stdout, sys.stderr = (open(fd, "w", encoding=encoding) for fd in (1, 2))  # noqa: SIM115, PTH123
            try:
                cli.main(arguments)
            except SystemExit as left:
                # Python's own end would copy every page that it shares with the server: ten times the work of a line.
                sys.stdout.flush(), sys.stderr.flush()
                os._exit(left.code or 0)
        print(json.dumps(wait(pid, output)), flush=True)


if __name__ == "__main__":
    serve()
