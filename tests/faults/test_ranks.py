"""Rows 28, 29 and 42: several ranks that cannot meet, one that dies, and going on with another number of them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from fault_helpers import FLAGS, FRAMES, Rnd, fingerprint, iterations, resume, small, start

from rnd.checkpoint import checkpoint
from rnd.checkpoint.folder import RunFolder

RANKS = 2
LONG = 10**9
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def torchrun(*arguments: str, cwd: Path, ranks: int = RANKS, meeting: tuple[str, ...] = ("--standalone",)) -> Rnd:
    program = [*TORCHRUN, *meeting, "--nproc-per-node", str(ranks), "-m", "rnd"]
    return Rnd(*arguments, cwd=cwd, program=program)


def train(cwd: Path, frames: int, **options) -> Rnd:
    saving = ("--checkpoint.every-iterations", "2")
    return torchrun("train", "CartPole-v1", *FLAGS, *saving, "--frames", str(frames), cwd=cwd, **options)


def finished(process: Rnd) -> str:
    code, said = process.finish(120)
    assert code == 0, said
    return said


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Six iterations of two ranks without a break."""
    folder = tmp_path_factory.mktemp("whole")
    said = finished(train(folder, 6 * RANKS * FRAMES))
    assert said.count("run folder:") == 1 and "on 2 ranks" in said  # one of them speaks
    return folder / "run"


def test_one_run_is_written(whole):
    assert iterations(whole) == [1, 2, 3, 4, 5, 6]
    assert not [path for path in whole.parent.iterdir() if path.name != "run"]


@pytest.mark.long
def test_resume_on_the_same_number_of_ranks_is_exact(whole, tmp_path):
    finished(train(tmp_path, 3 * RANKS * FRAMES))
    finished(torchrun("resume", "run", "--frames", str(6 * RANKS * FRAMES), cwd=tmp_path))
    assert fingerprint(tmp_path / "run") == fingerprint(whole)


def rank_of(process: Rnd, rank: int) -> int:
    """The process that has this number."""
    for pid in process.orphans():
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in variables and pid != process.popen.pid:
            return pid
    raise AssertionError(f"no rank {rank}")


def test_a_killed_rank_stops_all_and_the_run_goes_on_with_one(tmp_path):
    process = train(tmp_path, LONG)
    process.wait_for_rows(tmp_path / "run", 3, seconds=120)
    begun = time.monotonic()
    os.kill(rank_of(process, 1), signal.SIGKILL)
    code, said = process.finish(60)
    assert code != 0 and time.monotonic() - begun < 60
    assert "rnd: rank 1 does not answer" in said and "resume run" in said, said
    assert process.no_orphans()

    saved, _ = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert saved is not None
    done = saved.metadata["iteration"]
    weights = saved.state["policy"]
    said = resume(tmp_path / "run", done + 2)  # alone: the environments of both
    assert "from cpu on 2 ranks to cpu" in said and f"resumed at iteration {done}," in said
    assert iterations(tmp_path / "run") == list(range(1, done + 3))
    alone, _ = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert alone is not None and alone.metadata["config"]["env"]["num_envs"] == 2 * 4
    assert alone.state["policy"].keys() == weights.keys() and alone.state["other_ranks"] == []


def test_a_run_of_one_process_goes_on_with_two(tmp_path):
    start(small(iterations=2, env={"num_envs": 8}), tmp_path)
    said = finished(torchrun("resume", "run", "--frames", str(4 * RANKS * FRAMES), cwd=tmp_path))
    assert "from cpu to cpu on 2 ranks" in said
    assert iterations(tmp_path / "run") == [1, 2, 3, 4]


def test_torchrun_killed_alone_stops_the_ranks(tmp_path):
    process = train(tmp_path, LONG)
    process.wait_for_rows(tmp_path / "run", 3, seconds=120)
    process.popen.kill()
    assert process.no_orphans(seconds=60)
    saved, problems = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert saved is not None and not problems and saved.metadata["iteration"] == iterations(tmp_path / "run")[-1]
    assert "torchrun has ended: finishing this iteration and saving" in process.finish()[1]
    with RunFolder(tmp_path / "run").lock():
        pass


def test_a_rank_that_fails_tells_the_others_why(tmp_path):
    """An environment of rank 1 breaks in the middle; rank 0 does not wait, and says what rank 1 said."""
    (tmp_path / "moody.py").write_text(
        "import os\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class make(CartPoleEnv):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        self.steps += 1\n"
        "        if self.steps > 20 and os.environ['RANK'] == '1':\n"
        "            raise RuntimeError('out of order')\n"
        "        return super().step(action)\n"
    )
    program = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", "-m", "rnd"]
    process = Rnd(*("train", "moody:make", *FLAGS), cwd=tmp_path, program=program, env={"PYTHONPATH": str(tmp_path)})
    code, said = process.finish(100)
    assert code != 0, said
    assert "rnd: rank 1: environment 0" in said and "out of order" in said, said
    assert "rnd: rank 1 stopped: environment 0" in said, said
    assert process.no_orphans()


@pytest.fixture
def busy():
    """A port that somebody uses."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_busy_port_is_told(tmp_path, busy):
    variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(busy)}
    code, said = Rnd("train", "CartPole-v1", *FLAGS, cwd=tmp_path, env=variables).finish(60)
    assert code == 1 and "Traceback" not in said
    assert f"127.0.0.1:{busy}: another program uses this port; torchrun --standalone picks a free one" in said
    assert not (tmp_path / "run").exists()
