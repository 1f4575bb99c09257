"""Row 44: any command line gets exit code 0, 1 or 2, one line and an answer within 10 s; never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import command_lines
import pytest
from command_lines import Answer
from fault_helpers import SOURCE

from rnd.checkpoint.parts import export_parts

SEED, COUNT, STARTED = 18, 500, 100
"""How many random lines there are, and how many of them start Python anew."""
# Empty: Python keeps its bytecode, as for a user. Compiling all of PyTorch's modules takes eight seconds.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": ""}

Run = Callable[[list[str], dict[str, str]], Answer]


@pytest.fixture(scope="module")
def folder(finished, tmp_path_factory) -> Path:
    """What the command lines find in their working directory."""
    path = tmp_path_factory.mktemp("folder")
    shutil.copytree(finished, path / "run")
    export_parts(path / "run", path / "parts", None)
    (path / "file").write_text("")
    return path


@pytest.fixture(scope="module")
def forked(folder, tmp_path_factory) -> Iterator[Run]:
    """Runs a command line in a fork of a process that has imported everything."""
    program = [sys.executable, command_lines.__file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(program, env=ENVIRONMENT, **pipes) as server:

        def run(arguments: list[str], variables: dict[str, str]) -> Answer:
            cwd = Path(shutil.copytree(folder, tmp_path_factory.mktemp("line") / "cwd"))
            server.stdin.write(json.dumps([arguments, variables, str(cwd)]) + "\n")
            server.stdin.flush()
            answer = Answer(*json.loads(server.stdout.readline()))
            shutil.rmtree(cwd)
            return answer

        yield run


def started(arguments: list[str], variables: dict[str, str], cwd: Path) -> Answer:
    """Runs a command line as a process of its own."""
    with Path(cwd, "output").open("wb") as output:
        command = [sys.executable, "-m", "rnd", *arguments]
        popen = subprocess.Popen(
            command,
            cwd=cwd,
            env=ENVIRONMENT | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        answer = command_lines.wait(popen.pid, cwd / "output")
        popen.returncode = 0  # it was waited for
        return answer


HUGE = "9" * 400
TINY = ["--env.num-envs", "4", "--rollout-steps", "4", "--frames", "64", "--bonus-options.random-steps", "1"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train", "CartPole-v1", "--frames", HUGE], "--frames must be at most 1000000000000000, not a number of 400"),
        (["train", "CartPole-v1", "--seed", HUGE], "--seed must be at most 18446744073709551615"),
        (["train", "CartPole-v1", "--lr", "1e309"], "--lr must be at most 1e+30, not inf"),
        (["train", "CartPole-v1", "--env.num-envs", HUGE], "--env.num-envs must be at most"),
        (["train", "CartPole-v1", "--env.timeout", "nan"], "--env.timeout must be greater than 0"),
        (["train", "CartPole-v1", "--env.workers", "-1"], "--env.workers must be 0 or more, not -1; leave it out"),
        (["train", "CartPole-v1", "--threads", "2147483648"], "--threads must be at most 1024"),
        (["train", "CartPole-v1", "--clip-range", "1e308"], "--clip-range must be at most 1e+30"),
        (["train", "CartPole-v1", "--bonus-options.keep", "2"], "--bonus-options.keep must be between 0 and 1"),
        (["train", "CartPole-v1", "--bonus-options.features", HUGE], "--bonus-options.features must be at most 65536"),
        (["train", "CartPole-v1", "--policy-options.width", "0"], "--policy-options.width must be greater than 0"),
        (["train", "CartPole-v1", "--checkpoint.keep-last", "0"], "--checkpoint.keep-last must be greater than 0"),
        (["train", "venture", "--env.max-episode-frames", str(10**12)], "--env.max-episode-frames must be at most"),
        (["train", ""], "an argument is empty"),
        (["train", ":b"], "not of the form module:name"),
        (["train", ".:x"], "not of the form module:name"),
        (["train", "math:"], "not of the form module:name"),
        (["train", "math:pie"], "has no function 'pie' and registers no such id; nearest: pi"),
        (["train", "math:pi"], "math:pi is no function but float"),
        (["train", "os:getcwd"], "os:getcwd made no Gymnasium environment but str"),
        (["train", "--bonus", ":b"], "cannot load the bonus :b"),
        (["resume", ""], "an argument is empty"),
        (["resume", "run", "--frames", HUGE], "--frames must be at most"),
        (["resume", "run", "--frames", "0"], "--frames must be greater than 0"),
        (["watch", "run", "--seed", HUGE], "--seed must be at most"),
        (["watch", "run", "--episodes", "0"], "--episodes must be greater than 0"),
        (["bench", "envs", "--num-envs", "0"], "--num-envs must be greater than 0"),
        (["bench", "envs", "--num-envs", "16", "0"], "--num-envs must be greater than 0"),
        (["bench", "envs", "--seconds", "inf"], "--seconds must be at most"),
        (["bench", "learner", "--num-envs", "0"], "--num-envs must be greater than 0"),
        (["bench", "train", "--game", "nosuch"], "unknown Atari game nosuch"),
        (["bench", "train", "--game", "CartPole-v1"], "unknown Atari game CartPole-v1"),
        (["paper", "figure2", "--examples", "1", "0"], "--examples must be greater than 0"),
        (["paper", "--examples", "1", "1024", "figure2"], "write it before the flags"),
        (["paper", "figure3", "--jobs", "0"], "--jobs must be greater than 0"),
        (["paper", "figure3", "--scale", "nan"], "--scale must be greater than 0"),
        (["paper", "figure3", "--scale", "0.0001", "--device", ".:x"], "unknown device"),
    ],
)
def test_wrong_values_get_one_line_and_code_2(arguments, hint, forked):
    answer = forked(arguments, {})
    assert answer.code == 2 and not answer.problem(), answer
    assert hint in answer.output and answer.output.count("\n") == 1, answer.output


@pytest.mark.parametrize(
    ("variables", "hint"),
    [
        ({"WORLD_SIZE": "2"}, "RANK is not set; start with torchrun"),
        ({"RANK": "3"}, "RANK is 3 with WORLD_SIZE 1"),
        ({"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE must be a number from 1 on, not '0'"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a number from 1 on, not 'two'"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR is not set"),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK is 2 with LOCAL_WORLD_SIZE 2"),
    ],
)
def test_half_of_torchruns_variables_get_one_line_and_code_2(variables, hint, forked):
    answer = forked(["train", "CartPole-v1", *TINY], variables)
    assert answer.code == 2 and hint in answer.output and answer.output.count("\n") == 1, answer


def test_a_wrong_flag_is_told_by_one_rank(forked):
    for rank, said in ((0, 1), (1, 0)):
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        answer = forked(["train", "CartPole-v1", "--leraning-rate", "1"], variables | meeting)
        assert answer.code == 2 and answer.output.count("unknown flag") == said, answer


def test_several_values_of_one_flag(forked):
    """The name stands before the flags; all values reach the flag."""
    answer = forked(["paper", "figure2", "--data", "missing", "--examples", "1", "1024"], {})
    assert answer.code == 2 and "missing" in answer.output and "one name is wanted" not in answer.output, answer


@pytest.mark.long
def test_random_command_lines(forked, folder, tmp_path):
    """The flags are the real ones; a run that has begun is an answer."""
    lines = command_lines.command_lines(SEED, COUNT)

    def fresh(k: int) -> Answer:
        cwd = Path(shutil.copytree(folder, tmp_path / str(k)))
        answer = started(*lines[k], cwd)
        shutil.rmtree(cwd)
        return answer

    with ThreadPoolExecutor(1) as pool:  # beside the forked ones: this machine may have two cores
        first = pool.map(fresh, range(STARTED))
        answers = [forked(*line) for line in lines[STARTED:]]
        answers = [*first, *answers]
    wrong = [
        f"{answer.problem()}: rnd {' '.join(arguments)} {variables}\n{answer.output[-2000:]}"
        for (arguments, variables), answer in zip(lines, answers, strict=True)
        if answer.problem()
    ]
    assert not wrong, f"{len(wrong)} of {COUNT}:\n" + "\n".join(wrong)
    codes = [answer.code for answer in answers]
    assert codes.count(0) > COUNT / 10, "the random lines are nearly all wrong: they test little"
