"""The default job with and without its bonus: three seeds each, the same budget.

    python benchmarks/default_job.py [--seeds 1 2 3] [--jobs 2] [--json FILE] [--image FILE]

Bar: with RND every seed reaches 90% success over its last 100 episodes within 600,000 steps; without, at most 1%.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rnd.metrics.metrics import read_csv

STEPS = 600_000


def train(bonus: str, seed: int, folder: Path) -> dict[str, object]:
    """One run in a process of its own; when it reached 90%, and what it ended with."""
    name = f"{bonus}-{seed}"
    flags = ["--bonus", bonus, "--seed", str(seed), "--frames", str(STEPS), "--threads", "1"]
    command = [sys.executable, "-m", "rnd", "train", *flags, "--out", str(folder), "--name", name]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows, timing = read_csv(folder / name / "metrics.csv"), read_csv(folder / name / "timing.csv")
    reached = [frames for frames, success in zip(rows["frames"], rows["success"], strict=True) if success >= 0.9]
    return {
        "bonus": bonus,
        "seed": seed,
        "steps_to_90_percent": int(reached[0]) if reached else None,
        "highest_success": max(s for s in rows["success"] if s == s),
        "final_success": rows["success"][-1],
        "seconds": round(sum(timing["seconds"]), 1),
    }


def draw(folder: Path, image: Path) -> None:
    """Success against steps, one line per seed."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2), constrained_layout=True)
    for bonus, colour, label in (("rnd", "#0072b2", "RND"), ("none", "#999999", "PPO without a bonus")):
        for i, run in enumerate(sorted(folder.glob(f"{bonus}-*"))):
            rows = read_csv(run / "metrics.csv")
            axes.plot(rows["frames"], rows["success"], color=colour, label=label if i == 0 else None)
    axes.set(xlabel="steps", ylabel="success, last 100 episodes", ylim=(-0.02, 1.02), xlim=(0, STEPS))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center right")
    figure.savefig(image, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--image", type=Path)
    options = parser.parse_args()
    runs = [(bonus, seed) for bonus in ("rnd", "none") for seed in options.seeds]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda run: train(*run, Path(folder)), runs))
        if options.image:
            draw(Path(folder), options.image)
    for r in results:
        print(f"{r['bonus']:>5} seed {r['seed']}: 90% at {r['steps_to_90_percent']}, max {r['highest_success']:.0%}, "
              f"final {r['final_success']:.0%}, {r['seconds']} s")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    good = all(r["steps_to_90_percent"] is not None for r in results if r["bonus"] == "rnd")
    plain = all(float(str(r["highest_success"])) <= 0.01 for r in results if r["bonus"] == "none")
    print("bar met" if good and plain else "bar NOT met")
    return 0 if good and plain else 1


if __name__ == "__main__":
    sys.exit(main())
