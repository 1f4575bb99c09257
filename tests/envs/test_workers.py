"""Worker processes: the same numbers as without them, and what happens when they fail (faults 13, 17, 18, 19)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rnd import envs
from rnd.config import Config, EnvConfig
from rnd.envs.factories import make_env
from rnd.envs.process_io import SharedArrays
from rnd.envs.worker import Worker, shared_layout
from rnd.envs.workers import WorkerEnvs
from rnd.foundation.errors import RunError

CARTPOLE = "CartPole-v1"


def config(env_id: str, num_envs: int = 4, workers: int = 2, **options: object) -> Config:
    return Config(env=EnvConfig(id=env_id, num_envs=num_envs, workers=workers, **options))


def trace(env: envs.interface.VectorEnv, steps: int, start: int = 0) -> list[bytes]:
    """All results of a fixed sequence of actions."""
    results = []
    for t in range(start, start + steps):
        actions = np.random.default_rng(t).integers(0, env.spec.action.sizes[0], env.num_envs)
        step = env.step(actions)
        tensors = (step.obs, step.reward, step.done, step.info.truncated, step.info.room, step.info.lives)
        results += [x.numpy().tobytes() for x in tensors]
        results.append(repr(step.info.episodes).encode())
    return results


@pytest.mark.parametrize("env_id", [CARTPOLE, "ALE/MontezumaRevenge-v5"])
def test_workers_and_groups_change_nothing(env_id):
    results = []
    for workers, groups in [(0, 1), (1, 1), (3, 3), (5, 2)]:
        chosen = config(env_id, 5, workers)
        with closing(WorkerEnvs(chosen, workers, groups) if workers else envs.make(chosen)) as env:
            env.reset()
            results.append(trace(env, 30))
    assert all(other == results[0] for other in results)


def test_groups_step_while_others_wait():
    with closing(WorkerEnvs(config(CARTPOLE, 6), 2)) as env, closing(envs.make(config(CARTPOLE, 6, 0))) as plain:
        assert len(env.groups) == 2
        env.reset()
        plain.reset()
        for g in (0, 1):
            env.send(g, np.ones(3, int))
        late, early = env.recv(1), env.recv(0)  # results may be taken in any order
        wanted = plain.step(np.ones(6, int)).obs
        assert (early.obs == wanted[:3]).all() and (late.obs == wanted[3:]).all()


def test_a_saved_state_continues_with_other_workers():
    with closing(envs.make(config(CARTPOLE, 5, 3))) as env, closing(envs.make(config(CARTPOLE, 5, 0))) as other:
        env.reset()
        trace(env, 40)
        other.load_state_dict(env.state_dict())
        expected = trace(env, 40, start=40)
        assert trace(other, 40, start=40) == expected


def test_workers_never_import_torch():
    code = "import sys, rnd.envs.worker, rnd.envs.ale_env, rnd.envs.gym_env; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_that_raises_is_reported_with_number_and_traceback(workers):
    with closing(envs.make(config("faulty:make_raise", workers=workers))) as env:
        env.reset()
        env.step(np.zeros(4, int))
        with pytest.raises(RunError, match="environment 2 raised ValueError: the treasure is cursed") as caught:
            env.step(np.array([0, 0, 1, 0]))
    (note,) = caught.value.__notes__
    assert "Traceback (most recent call last)" in note
    assert "faulty.py" in note and 'raise ValueError("the treasure is cursed")' in note


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("fault", "word"), [("nan_reward", "reward"), ("inf_observation", "observation")])
def test_numbers_that_are_not_finite_stop_the_run(workers, fault, word):
    with closing(envs.make(config(f"faulty:make_{fault}", workers=workers))) as env:
        env.reset()
        for _ in range(7):
            env.step(np.zeros(4, int))
        with pytest.raises(RunError, match=rf"environment 3 returned a NaN or infinite {word} at step 7 of"):
            env.step(np.array([0, 0, 0, 1]))


def test_a_killed_worker_is_noticed():
    with closing(envs.make(config("faulty:make_kill"))) as env:
        env.reset()
        with pytest.raises(RunError, match=r"worker 1 .*killed by SIGKILL; it was last in environment 1"):
            env.step(np.array([0, 1, 0, 0]))


def test_a_worker_killed_while_idle_is_noticed():
    with closing(envs.make(config(CARTPOLE))) as env:
        env.reset()
        env.processes[0].popen.send_signal(signal.SIGKILL)
        with pytest.raises(RunError, match=r"worker 0 .*killed by SIGKILL"):
            env.step(np.zeros(4, int))


def test_a_hanging_worker_is_named():
    with closing(envs.make(config("faulty:make_hang", timeout=90.0))) as env:
        assert env.timeout == 90
        env.reset()
        env.timeout = 2.0  # only now: on a busy machine starting and resetting may take longer
        with pytest.raises(RunError, match=r"environment 2 has not answered for 2 s"):
            env.step(np.array([0, 0, 1, 0]))
        pids = [process.popen.pid for process in env.processes]
    assert not any(alive(pid) for pid in pids)


def test_every_environment_that_a_worker_makes_is_a_heartbeat():
    made = config(CARTPOLE, 5)
    shared = SharedArrays(shared_layout(make_env(made, 0).spec, 5, 1))
    worker = Worker(
        {"config": made.to_dict(), "worker": 0, "workers": 1, "rows_of_group": [(0, 3, 1), (3, 5, 1)], "fd": shared.fd}
    )
    worker.build()
    assert shared.arrays["heartbeats"][0] == 4 and shared.arrays["busy"][0] == 4
    assert sorted(worker.envs) == [0, 1, 2, 3, 4]


def test_a_factory_that_fails_raises_at_the_start():
    with pytest.raises(RunError, match="the factory faulty:make_broken raised OSError: no display") as caught:
        envs.make(config("faulty:make_broken"))
    assert "in make_broken" in caught.value.__notes__[0]


PARENT = """
import sys, numpy as np
from rnd import envs
from rnd.config import Config, EnvConfig
env = envs.make(Config(env=EnvConfig(id=sys.argv[1], num_envs=4, workers=2)))
env.reset()
env.send(0, np.ones(2, int))
print(*(process.popen.pid for process in env.processes), flush=True)
input()
"""


@pytest.mark.parametrize("env_id", [CARTPOLE, "faulty:make_hang", "faulty:make_hang_in_c"])
def test_no_orphans_when_the_parent_is_killed(env_id):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, env_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2 and all(alive(pid) for pid in pids)
    time.sleep(0.3)  # so that the environments hang
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """Running, and not a zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
