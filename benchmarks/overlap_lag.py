"""What acting with older weights costs: `--overlap` and `--overlap-refresh epoch` beside the synchronous loop.

    python benchmarks/overlap_lag.py [--tasks MiniGrid-MultiRoom-N4-S5-v1 rnd/FourRooms] [--seeds 1 2 3 4 5] [--jobs 2]

The default settings of the task, 160,000 steps, one thread. A task is solved when 90% of the last 100 episodes reach
the goal. KL and clipped share are those of the updates between 20,000 and 60,000 steps, means over their minibatches:
how far the policy that learns is from the one that acted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

from rnd.metrics.metrics import read_csv

STEPS, EARLY = 160_000, (20_000, 60_000)
MODES = {
    "synchronous": [],
    "--overlap": ["--overlap"],
    "--overlap --overlap-refresh epoch": ["--overlap", "--overlap-refresh", "epoch"],
}
TASKS = ["MiniGrid-MultiRoom-N4-S5-v1", "rnd/FourRooms"]


def train(task: str, mode: str, seed: int, out: str) -> dict[str, list[float]]:
    """The metrics of one run in a process of its own."""
    name = f"{task.replace('/', '-')}-{[*MODES].index(mode)}-{seed}"
    flags = [*MODES[mode], "--seed", str(seed), "--frames", str(STEPS), "--threads", "1", "--writers", "none"]
    command = [sys.executable, "-m", "rnd", "train", task, *flags, "--out", out, "--name", name]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
    print(f"{task}, {mode}, seed {seed}", file=sys.stderr, flush=True)
    return read_csv(Path(out, name, "metrics.csv"))


def solved_after(rows: dict[str, list[float]]) -> int | None:
    """Steps after which 100 episodes have ended and 90% of the last ones have reached the goal."""
    columns = zip(rows["frames"], rows["episodes"], rows["success"], strict=True)
    return next((int(frames) for frames, episodes, success in columns if episodes >= 100 and success >= 0.9), None)


def early_mean(runs: list[dict[str, list[float]]], column: str) -> float:
    low, high = EARLY
    return fmean(v for rows in runs for f, v in zip(rows["frames"], rows[column], strict=True) if low < f < high)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    arms = [(task, mode) for task in options.tasks for mode in MODES]
    with tempfile.TemporaryDirectory() as out, ThreadPoolExecutor(options.jobs) as pool:
        pending = {arm: [pool.submit(train, *arm, seed, out) for seed in options.seeds] for arm in arms}
        found = {arm: [run.result() for run in runs] for arm, runs in pending.items()}
    print("| task | acting | solved | after | KL | clipped |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for (task, mode), runs in found.items():
        reached = [frames for rows in runs if (frames := solved_after(rows))]
        steps = f"{min(reached):,} to {max(reached):,}" if reached else ""
        distance = f"{early_mean(runs, 'approx_kl'):.4f} | {early_mean(runs, 'clip_fraction'):.1%}"
        print(f"| {task} | {mode} | {len(reached)} of {len(runs)} | {steps} | {distance} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
