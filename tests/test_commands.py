"""The commands of README and docs: they parse, and in `make test-long` they run as pasted in a fresh clone."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pages import FILES
from rnd import cli
from rnd.commands import evaluate
from rnd.commands.completion import tables
from rnd.config.flags import declared
from rnd.training.evaluation import Evaluation

ROOT = Path(__file__).parents[1]
# log.md names commands of earlier commits; slurm.md has whole scripts for a cluster.
PAGES = [ROOT / "README.md", *(page for page in sorted(ROOT.glob("docs/*.md")) if page.stem not in ("log", "slurm"))]

EXCLUDED = {
    "make test": "these tests are part of it",
    "torchrun --standalone --nproc-per-node 8 -m rnd train montezuma --frames 15728640000": "needs eight GPUs",
    "torchrun --standalone --nproc-per-node 8 -m rnd resume runs/NAME": "needs eight GPUs",
    "python benchmarks/image_tasks.py --jobs 2": "needs Crafter, MiniHack and Procgen",
    "rnd paper figure7 --ray HOST:6379 --out /shared/paper": "needs a Ray cluster",
}
"""Commands that are parsed and not run, and why."""
SMALLER = {
    "rnd train montezuma": "--env.num-envs 4 --frames 10000",
    "rnd train montezuma --recipe efficient": "--env.num-envs 32 --frames 20000",
    "rnd train montezuma --recipe snd": "--env.num-envs 32 --frames 20000",
    "rnd train venture --policy gru": "--env.num-envs 4 --frames 10000",
    "rnd train ALE/Hero-v5 --bonus none": "--env.num-envs 4 --frames 10000",
    "rnd paper figure7 --jobs 4": "--scale 0.000001 --only venture-none",
    "rnd paper bonuses --game gravitar --frames 50000000 --only snd-v": "--scale 0.0002 --seed 1",
    "rnd paper efficiency --only minibatches-16 16-target-kl --seed 1 --frames 100e6 --jobs 2": "--scale 0.0001",
    "rnd paper bonuses --game MiniGrid-MultiRoom-N4-S5-v1 --jobs 2": "--scale 0.005",
    "rnd sweep MountainCar-v0 --trials 12 --frames 60000": "--trials 2 --frames 2000 --finals 0",
    "python benchmarks/small_tasks.py --jobs 2": "--tasks MountainCarContinuous --bonuses rnd --seeds 6",
}
"""Commands of more than five minutes, and the flags that stand beside them for a smaller size."""
PLACEHOLDERS = {
    "REPOSITORY": str(ROOT),
    "RUN": "runs/NAME",
    "RUN...": "runs/NAME",
    "RUN_OR_FILE": "runs/NAME",
    "FILE": "runs/NAME",
    "GAME": "montezuma",
    "ENVIRONMENT": "montezuma",
    "BONUS": "rnd",
    "NAME": "figure3",
    "DIR": "data",
    "N": "100",
    "COMMAND": "train",
    "HOST:6379": "localhost:6379",
}
"""Words that stand for the reader's own. The folder runs/NAME and the module my_package exist while a command runs."""
MY_PACKAGE = """
import gymnasium
from rnd.bonus.rnd import RND as MyBonus

def make_env():
    return gymnasium.make("CartPole-v1")
"""
WORKS = (
    "rnd.run.start",
    "rnd.jobs.seeds.train_seeds",
    "rnd.sweep.sweep.search",
    "rnd.run.resume",
    "rnd.report.runs.expand",
    "rnd.report.watch.watch",
    "rnd.checkpoint.export.load_agent",
    "rnd.checkpoint.export.export_agent",
    "rnd.training.trace.read_trace",
    "rnd.checkpoint.zoo.listed",
    "rnd.checkpoint.zoo.locate",
    "rnd.checkpoint.card.write_card",
    "rnd.checkpoint.parts.export_parts",
    "rnd.checkpoint.parts.import_parts",
    "rnd.commands.completion.tables",
    "rnd.commands.paper._list_all",
    "rnd.commands.paper._list",
    "rnd.commands.paper._print_plan",
    "rnd.paper.figure2.run",
    "rnd.paper.noisy_tv.run",
    "rnd.paper.prediction_errors.run",
    "rnd.bench.envs.run",
    "rnd.bench.learner.run",
    "rnd.bench.start.run",
    "rnd.bench.train.run",
)
"""The functions that begin the work of a command, after its arguments are read."""


def write_own(folder: Path) -> None:
    """The modules that a reader has written: those of the pages, and my_package."""
    for name, text in (FILES | {"my_package.py": MY_PACKAGE}).items():
        (folder / name).write_text(text)


class ReachedError(Exception):
    """A command has read its arguments."""


def commands(page: Path) -> list[str]:
    """The lines of indented blocks, and of fenced ones that are marked as shell, without comments."""
    found, fence, block, before = [], None, False, ""
    for line in page.read_text().splitlines():
        block = line.startswith("    ") and (block or not before)  # without an empty line before it: part of a list
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence == "bash" or (fence is None and block):
            found.append(re.sub(r"\s+#\s.*", "", line).strip())
        before = line
    return [line for line in found if line]


def inline(page: Path) -> list[str]:
    """The `rnd COMMAND ...` of running text and tables, up to a shell operator."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    found = re.findall(r"`(rnd [a-z]+ [^`;|&]+)", text)
    return [" ".join(command.split()) for command in found]


def filled(words: list[str]) -> list[str]:
    return [PLACEHOLDERS.get(word, word) for word in words]


BLOCKS = [(page, command) for page in PAGES for command in commands(page)]
ALL = dict.fromkeys([*(command for _, command in BLOCKS), *(command for page in PAGES for command in inline(page))])


FLAGS = {"--help", "--version", *(flag for options, _ in tables().values() for flag in declared(options))}
OPTIONS = ("--bonus-options.", "--policy-options.", "--writer-options.")
"""Flags of components; which ones there are depends on the component."""
OF_OTHERS = {"--cores", "--emulator", "--network", "--tasks", "--bonuses", "--simd"}
"""Flags of benchmarks/scaling_model.py, small_tasks.py and native_speed.py."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_flags_that_are_named_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    spans = [span for span in re.findall(r"`([^`\n]+)`", text) if span.startswith(("-", "rnd "))]
    named = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*", span)}
    assert not {flag for flag in named - FLAGS - OF_OTHERS if not flag.startswith(OPTIONS)}


def test_the_commands_are_found():
    found = [command for _, command in BLOCKS]
    assert {"make train", "rnd bench train", "pip install --editable ."} <= {*found}
    assert {*EXCLUDED, *SMALLER} <= {*found}
    assert "rnd paper figure3 --scale 0.000002 --jobs 2" in ALL


@pytest.mark.parametrize("command", ALL)
def test_a_command_can_be_read(command, tmp_path, monkeypatch):
    words = shlex.split(command.split(" && ")[0])
    program, arguments = Path(words[0]).name, words[1:]
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program in ("python", "python3", "pytest"):
        files = [word for word in arguments if "/" in word]
        assert all((ROOT / file).exists() for file in files)
    elif program == "torchrun":
        parse(arguments[arguments.index("rnd") + 1 :], tmp_path, monkeypatch)
    elif program == "rnd":
        parse(arguments, tmp_path, monkeypatch)
    else:
        assert program in ("git", "pip", "source", "cmake", "sanitize"), "a line of a shell block is no known command"


def parse(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that `rnd` does with its arguments before its work begins."""
    for name in ("runs/NAME/config.json", "runs/sweep-mountaincar-v0-noveld-mlp/best.json"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("{}")
    write_own(folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)

    def reached(*_: object, **__: object) -> None:
        raise ReachedError

    monkeypatch.setattr("rnd.api.kind_of", lambda game, reads: "numbers")  # it makes the environment
    for name in WORKS:
        monkeypatch.setattr(name, reached)
    with pytest.raises((ReachedError, SystemExit)) as end:  # --help exits
        cli.dispatch(filled(arguments))
    assert end.type is ReachedError or end.value.code in (0, None)


@pytest.mark.parametrize("command", SMALLER)
def test_the_smaller_size_stands_beside_the_command(command):
    pages = [page for page, found in BLOCKS if found == command]
    assert pages and all(f"`{SMALLER[command]}`" in page.read_text() for page in pages)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The files of this checkout, installed as `make` does, with a run and a module of the reader's own."""
    folder = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    write_own(folder)
    shell("make .venv/.installed && python -c 'import rnd.envs.native._core'", folder)
    shell("rnd train --frames 10000 --name NAME", folder)
    return folder


def shell(command: str, folder: Path) -> None:
    """Run it as a reader would: not with the settings of the tests (conftest.py names no compiler)."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CXX")}
    environment["PATH"] = f"{folder / '.venv/bin'}:{environment['PATH']}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.long
@pytest.mark.parametrize("command", [command for command in dict(map(reversed, BLOCKS)) if command not in EXCLUDED])
def test_a_command_runs_as_pasted(command, clone):
    line = f"{command} {SMALLER.get(command, '')}".replace("REPOSITORY", PLACEHOLDERS["REPOSITORY"])
    shell(line, clone)


@pytest.mark.parametrize(
    ("env_id", "places"),
    [("MiniGrid-MultiRoom-N4-S5-v1", "cells per episode 2.5"), ("ALE/Pitfall-v5", "rooms 3 (2.5 per episode)")],
)
def test_a_score_has_three_digits_and_counts_cells_per_episode(env_id, places):
    scores, rooms, cells = [0.6838, 0.7012], [[1, 2], [1, 2, 3]], env_id.startswith("MiniGrid")
    result = Evaluation(env_id, 10, 1, False, scores, [5, 5], rooms, np.zeros(5), 0.0, cells)
    assert {name for name in result.to_dict() if "rooms" in name} == (
        set() if cells else {"rooms", "rooms_per_episode"}
    )
    said = evaluate.described(result)
    assert said.startswith(
        "mean return 0.693 (95%: 0.684 to 0.701), median 0.693, interquartile mean 0.693, best 0.701"
    )
    assert said.endswith(f"success 100%, {places}")
