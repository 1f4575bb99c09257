"""Learning curves in Crafter, MiniHack and Procgen, with the bonus and without: the default settings on one core each.

    python benchmarks/image_tasks.py [--tasks crafter minihack procgen] [--bonuses noveld none] [--seeds 1 2 3]
                                     [--jobs 2] [--draw]

    pip install crafter nle minihack 'setuptools<80' procgen-mirror

Every run is a few lines of benchmarks/results/image_tasks.csv, and is not done again; the image and the table are drawn
from that file. `--draw` does nothing else. procgen-mirror is Procgen for newer Pythons. It asks for an older NumPy than
it needs: install NumPy 2 again after it.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ROOT = Path(__file__).parents[1]
RESULTS, IMAGE = ROOT / "benchmarks/results/image_tasks.csv", ROOT / "docs/images/image-tasks.png"
COLUMNS = ("task", "bonus", "seed", "frames", "return_mean", "return_best")
POINTS = 25
"""Rows that are kept of every run."""


@dataclass(frozen=True)
class Task:
    env: str
    title: str
    frames: int


TASKS = {
    "crafter": Task("examples.crafter_env:make_with_inventory", "Crafter, with its inventory", 40_000),
    "minihack": Task("image_tasks:minihack_key_room", "MiniHack KeyRoom-S5", 60_000),
    "procgen": Task("image_tasks:procgen_leaper", "Procgen leaper, exploration mode", 60_000),
}
NAMES = {"noveld": "NovelD", "rnd": "RND", "none": "no bonus"}


def minihack_key_room() -> gymnasium.Env[Any, Any]:
    """A key, a door and a staircase: glyphs around the agent, and the numbers of its status line."""
    import minihack  # noqa: F401  registers its ids

    env: gymnasium.Env[Any, Any] = gymnasium.make("MiniHack-KeyRoom-S5-v0", observation_keys=("glyphs_crop", "blstats"))
    return env


class ProcgenLeaper(gymnasium.Env[Any, Any]):
    """One Procgen environment as a Gymnasium environment. Its own step resets at once, so the last observation of an
    episode is not known: the one before it stands for it."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 255, (64, 64, 3), np.uint8), spaces.Discrete(15)
        self.made: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or self.made is None:
            from procgen import ProcgenGym3Env

            seed = int(self.np_random.integers(2**31))
            mode = {"distribution_mode": "exploration"}  # one level, hard to find a reward in (Cobbe et al. 2020)
            self.made = ProcgenGym3Env(num=1, env_name="leaper", num_threads=0, rand_seed=seed, **mode)
        self.last = self.made.observe()[1]["rgb"][0].copy()
        return self.last, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.made.act(np.array([action], np.int32))
        reward, obs, first = self.made.observe()
        if not first[0]:
            self.last = obs["rgb"][0].copy()
        return self.last, float(reward[0]), bool(first[0]), False, {}


def procgen_leaper() -> ProcgenLeaper:
    return ProcgenLeaper()


def train(name: str, bonus: str, seed: int) -> list[dict[str, Any]]:
    """The rows of one run."""
    import rnd
    from rnd.metrics.metrics import read_csv

    task = TASKS[name]
    with tempfile.TemporaryDirectory() as folder:
        changes = {"seed": seed, "frames": task.frames, "device": "cpu", "threads": 1, "out": folder}
        agent = rnd.train(task.env, quiet=True, bonus=bonus, **changes)
        columns = read_csv(agent.path / "metrics.csv")
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    kept = [rows[i] for i in np.linspace(0, len(rows) - 1, min(POINTS, len(rows))).round().astype(int)]
    run = {"task": name, "bonus": bonus, "seed": seed}
    return [run | {"frames": int(r["frames"])} | {c: round(r[c], 4) for c in COLUMNS[4:]} for r in kept]


def read() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open() as file:
        return [r | {"seed": int(r["seed"]), "frames": int(r["frames"])} for r in csv.DictReader(file)]


def append(rows: list[dict[str, Any]]) -> None:
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def curves(rows: list[dict[str, Any]], task: str, bonus: str) -> dict[int, tuple[list[int], list[float]]]:
    """Frames and mean returns, by seed."""
    own = [r for r in rows if (r["task"], r["bonus"]) == (task, bonus)]
    return {
        seed: (
            [r["frames"] for r in own if r["seed"] == seed],
            [float(r["return_mean"]) for r in own if r["seed"] == seed],
        )
        for seed in sorted({r["seed"] for r in own})
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| task | frames | bonus | mean return of the last 100 episodes, by seed |", "| --- | ---: | --- | --- |"]
    for name, task in TASKS.items():
        for bonus, words in NAMES.items():
            if found := curves(rows, name, bonus):
                values = ", ".join(f"{returns[-1]:.2f}" for _, returns in found.values())
                lines.append(f"| {task.title} | {task.frames:,} | {words} | {values} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]]) -> None:
    """A panel per task, a line per seed."""
    from rnd.report.figure import COLOURS, new_figure

    figure = new_figure(11, 3.2)
    for ax, (name, task) in zip(figure.subplots(1, len(TASKS)), TASKS.items(), strict=True):
        for colour, (bonus, words) in zip(COLOURS, NAMES.items(), strict=False):
            for i, (frames, returns) in enumerate(curves(rows, name, bonus).values()):
                ax.plot(frames, returns, color=colour, lw=1.4, label=words if i == 0 else None)
        ax.set_title(task.title, fontsize=10)
        ax.set_xlabel("steps", fontsize=8)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("return, last 100 episodes", fontsize=8)
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(IMAGE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--bonuses", nargs="+", choices=[*NAMES], default=["noveld", "none"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args()
    done = {(r["task"], r["bonus"], r["seed"]) for r in read()}
    runs = [(t, b, s) for s in options.seeds for t in options.tasks for b in options.bonuses]
    runs = [run for run in runs if run not in done and not options.draw]
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(train, *run) for run in runs]):
            append(future.result())
            print(*future.result()[-1].values(), sep=", ", flush=True)
    draw(read())
    print(table(read()))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    main()
