"""Start-up and memory of many environments on one machine: `python benchmarks/many_envs.py`.

For every number of environments, in a process of its own: seconds until they have started and reset themselves, memory
of the process and its workers (proportional set size), a step of all of them, and saving them. What grows faster than N
would show in the columns that are divided by N.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnd.config.presets import preset

STEPS = 20


def memory(pid: int) -> int:
    """Bytes of a process and of all below it; shared pages are counted once."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    own = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return own + sum(memory(int(child)) for child in children)


def measure(game: str, envs: int, workers: int | None, backend: str) -> dict[str, float | str]:
    from rnd import envs as environments
    from rnd.training.random_agent import random_actions

    config = preset(game)
    config = replace(config, env=replace(config.env, num_envs=envs, workers=workers, backend=backend))
    before, begun = memory(os.getpid()), time.perf_counter()
    with closing(environments.make(config)) as env:
        env.reset()
        started = time.perf_counter() - begun
        random = np.random.default_rng(0)
        begun = time.perf_counter()
        for _ in range(STEPS):
            env.step(random_actions(env, random))
        step = (time.perf_counter() - begun) / STEPS
        held = memory(os.getpid()) - before
        begun = time.perf_counter()
        state = env.state_dict()
        save = time.perf_counter() - begun
        size = sum(array.nbytes for array in state.values())
        backend = env.spec.backend
    return {"start": started, "memory": held, "step": step, "save": save, "bytes": size, "backend": backend}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="montezuma")
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--workers", type=int)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        print(json.dumps(measure(o.game, o.envs[0], o.workers, o.backend)))
        return
    print("| environments | start | memory | memory / N | step / N | save / N | saved bytes / N | backend |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for n in o.envs:
        command = [sys.executable, __file__, "--one", "--game", o.game, "--envs", str(n), "--backend", o.backend]
        command += ["--workers", str(o.workers)] if o.workers is not None else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        m = json.loads(done.stdout.strip().splitlines()[-1])
        print(
            f"| {n:,} | {m['start']:.1f} s | {m['memory'] / 1e6:,.0f} MB | {m['memory'] / n / 1e3:,.0f} kB "
            f"| {1e6 * m['step'] / n:,.0f} µs | {1e6 * m['save'] / n:,.0f} µs | {m['bytes'] / n:,.0f} "
            f"| {m['backend']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
