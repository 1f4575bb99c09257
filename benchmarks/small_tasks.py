"""Small sparse tasks with the default settings: RND, no bonus, counts, and the bonuses that came after the paper.

    python benchmarks/small_tasks.py [--tasks ...] [--bonuses rnd drnd ...] [--seeds 1 2 3 4 5] [--jobs 2]
                                     [--minutes M] [--out FILE] [--list]

Every run has one core, and ends at its goal or with its budget of steps. It is then one line of the file, and is not
done again; the table is drawn from the file. `--minutes` ends the whole: runs that are not finished by then are given
up. `--list` prints what would run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # tasks.py
RESULTS = Path(__file__).parent / "results" / "small_tasks.jsonl"
BONUSES = ("rnd", "none", "count", "noveld", "e3b", "snd-v", "snd-vic", "drnd")


@dataclass(frozen=True)
class Task:
    """A task, its budget and when it counts as learned."""

    env: str
    steps: int
    goal: float
    """Success, or mean return, of the last 100 episodes."""
    needs: str = ""
    """A package that may be missing."""


def point_maze(rows: list[list[Any]], limit: int) -> Any:
    import gymnasium
    import gymnasium_robotics  # noqa: F401  registers its ids

    options = {"continuing_task": False, "reset_target": False, "max_episode_steps": limit}
    env = gymnasium.make("PointMaze_UMaze-v3", maze_map=rows, **options)
    env.unwrapped.sparse = True  # any reward is a success
    return env


def point_maze_u() -> Any:
    """From one end of the U to the other."""
    return point_maze(
        [[1, 1, 1, 1, 1], [1, "r", 0, 0, 1], [1, 1, 1, 0, 1], [1, "g", 0, 0, 1], [1, 1, 1, 1, 1]], limit=300
    )


def point_maze_medium() -> Any:
    """The medium maze of the package, from corner to corner."""
    rows: list[list[Any]] = [
        [1, 1, 1, 1, 1, 1, 1, 1],
        [1, "r", 0, 1, 1, 0, 0, 1],
        [1, 0, 0, 1, 0, 0, 0, 1],
        [1, 1, 0, 0, 0, 1, 1, 1],
        [1, 0, 0, 1, 0, 0, 0, 1],
        [1, 0, 1, 0, 0, 1, 0, 1],
        [1, 0, 0, 0, 1, 0, "g", 1],
        [1, 1, 1, 1, 1, 1, 1, 1],
    ]
    return point_maze(rows, limit=600)


def multi_room_images() -> Any:
    """Two rooms of MiniGrid as the agent sees them, in colour, 56x56."""
    import gymnasium
    from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

    env = ImgObsWrapper(RGBImgPartialObsWrapper(gymnasium.make("MiniGrid-MultiRoom-N2-S4-v0")))
    env.unwrapped.sparse = True
    return env


def taxi() -> Any:
    """Version 4, or 3 where Gymnasium is older."""
    import gymnasium

    return gymnasium.make("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3")


ROBOTICS = "gymnasium_robotics"
TASKS = {
    "MountainCar": Task("MountainCar-v0", 600_000, -130),
    "MountainCarContinuous": Task("MountainCarContinuous-v0", 400_000, 85),
    "PointMaze U": Task("small_tasks:point_maze_u", 100_000, 0.9, needs=ROBOTICS),
    "PointMaze Medium": Task("small_tasks:point_maze_medium", 300_000, 0.9, needs=ROBOTICS),
    "FourRooms": Task("rnd/FourRooms", 150_000, 0.9),
    "FourRooms, noisy TV": Task("grid_tasks:four_rooms_noisy_tv", 300_000, 0.9),
    "KeyDoor choices": Task("tasks:key_choices", 200_000, 0.9),
    "KeyDoor vector": Task("tasks:key_vector", 150_000, 0.9),
    "KeyDoor moving": Task("grid_tasks:moving_key", 150_000, 0.9),
    "FrozenLake 8x8": Task("FrozenLake8x8-v1", 300_000, 0.7),
    "Taxi": Task("small_tasks:taxi", 600_000, 7),
    "DeepSea-20": Task("rnd/DeepSea-20", 300_000, 0.9),
    "DeepSea-40": Task("rnd/DeepSea-40", 600_000, 0.9),
    "MultiRoom-N4-S5": Task("MiniGrid-MultiRoom-N4-S5-v1", 600_000, 0.9),
    "DoorKey-8x8": Task("MiniGrid-DoorKey-8x8-v0", 600_000, 0.9),
    "KeyCorridorS3R3": Task("MiniGrid-KeyCorridorS3R3-v0", 600_000, 0.9),
    "KeyDoor images": Task("tasks:key_image", 100_000, 0.9),
    "MultiRoom-N2 images": Task("small_tasks:multi_room_images", 150_000, 0.9),
    "NAVIX DoorKey-6x6": Task("navix:Navix-DoorKey-6x6-v0", 600_000, 0.9, needs="navix"),
    "NAVIX DoorKey-8x8": Task("navix:Navix-DoorKey-8x8-v0", 600_000, 0.9, needs="navix"),
    "NAVIX FourRooms": Task("navix:Navix-FourRooms-v0", 250_000, 0.9, needs="navix"),
}
"""In the order in which they run within a seed."""


def train(name: str, bonus: str, seed: int, deadline: float) -> dict[str, Any] | None:
    """One run with the defaults to its goal or its end, or None where the time is over before."""
    from rnd import envs
    from rnd.config.presets import preset, with_bonus
    from rnd.envs.factories import kind_of
    from rnd.training.trainer import Trainer

    task, begun, reached, row = TASKS[name], time.monotonic(), None, {}
    config = with_bonus(preset(task.env, kind_of(task.env)), bonus)
    config = replace(config, seed=seed, frames=task.steps, device="cpu", threads=1)
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        for _ in trainer.random_start():
            pass
        trainer.start()
        for row in trainer.train():
            if time.time() > deadline:
                return None
            value = score(row)
            if row["episodes"] >= 100 and value is not None and value >= task.goal:
                reached = trainer.frames
                break
    return {
        "task": name,
        "bonus": bonus,
        "seed": seed,
        "score": score(row),
        "steps_to_goal": reached,
        "best_return": row["return_best"],
        "bonus_share": row["bonus_share"],
        "entropy": row["entropy"],
        "steps": trainer.frames,
        "seconds": round(time.monotonic() - begun, 1),
    }


def score(row: dict[str, Any]) -> float | None:
    """Success of the last 100 episodes, or their mean return where success has no meaning."""
    value: float | None = row["return_mean"] if row["success"] is None else row["success"]
    return value


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(results: list[dict[str, Any]]) -> str:
    """Interquartile mean and its interval, runs that reached the goal, and the median of their steps to it."""
    from rnd.foundation.statistics import bootstrap_interval, interquartile_mean

    lines = [
        "| task | goal | steps | bonus | seeds | score (IQM, 95% interval) | reached the goal | steps to it |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, task in TASKS.items():
        for bonus in BONUSES:
            runs = [r for r in results if (r["task"], r["bonus"]) == (name, bonus)]
            if not runs:
                continue
            scores = np.array([r["score"] for r in runs], float)
            low, high = bootstrap_interval([scores])
            reached = [r["steps_to_goal"] for r in runs if r["steps_to_goal"]]
            steps = f"{int(np.median(reached)):,}" if reached else "-"
            iqm = f"{float(interquartile_mean(scores)):.2f} ({low:.2f} to {high:.2f})"
            lines.append(
                f"| {name} | {task.goal:g} | {task.steps:,} | {bonus} | {len(runs)} | {iqm} "
                f"| {len(reached)} of {len(runs)} | {steps} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS], metavar="TASK")
    parser.add_argument("--bonuses", nargs="+", choices=BONUSES, default=["rnd", "none", "count"], metavar="BONUS")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    done = {(r["task"], r["bonus"], r["seed"]) for r in read(options.out)}
    runs = [(t, b, s) for s in options.seeds for t in options.tasks for b in options.bonuses if (t, b, s) not in done]
    missing = {TASKS[t].needs for t, _, _ in runs if TASKS[t].needs and not installed(TASKS[t].needs)}
    runs = [run for run in runs if TASKS[run[0]].needs not in missing]
    for package in missing:
        print(f"left out: tasks that need {package}")
    if options.list:
        for run in runs:
            print(*run, sep=", ")
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    deadline = time.time() + 60 * options.minutes
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(train, *run, deadline) for run in runs]):
            if result := future.result():
                with options.out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(*result.values(), sep=", ", flush=True)
    print(table(read(options.out)))


def installed(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


if __name__ == "__main__":
    sys.exit(main())
