"""Training speed on images in four forms: `rnd train` on ViZDoom, whose observation is a dictionary, and on the same
screen alone, channels first, and as floats. A frame is one step of the environment, as it counts steps itself.

    pip install vizdoom
    python benchmarks/images.py [--frames 12288] [--threads 2] [--json FILE]

Bar: over 200 frames/s in all forms on two idle cores. Prints the median over the iterations after the first, the shares
of the wall time, and frames per second of processor time (environments included), which other work on the machine
changes little.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rnd.metrics.metrics import read_csv

ID = "VizdoomMyWayHome-v1"
FORMS = (ID, "images:screen", "images:channels_first", "images:floats")
PHASES = ("emulation", "inference", "learning", "other")


def screen() -> gymnasium.Env[Any, Any]:
    """HxWxC bytes."""
    import vizdoom.gymnasium_wrapper  # noqa: F401  registers the ids

    env = gymnasium.make(ID)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs["screen"], env.observation_space["screen"])


def channels_first() -> gymnasium.Env[Any, Any]:
    """CxHxW bytes."""
    env = screen()
    height, width, channels = env.observation_space.shape
    space = gymnasium.spaces.Box(0, 255, (channels, height, width), np.uint8)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs.transpose(2, 0, 1), space)


def floats() -> gymnasium.Env[Any, Any]:
    """HxWxC, 0 to 1."""
    env = screen()
    space = gymnasium.spaces.Box(0, 1, env.observation_space.shape, np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs.astype(np.float32) / 255, space)


def measure(form: str, frames: int, threads: int, folder: Path) -> dict[str, Any]:
    """One run in a process of its own."""
    name = form.replace(":", "-")
    flags = ["--frames", str(frames), "--threads", str(threads), "--device", "cpu", "--out", str(folder)]
    command = [sys.executable, "-m", "rnd", "train", form, *flags, "--name", name]
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    timing = read_csv(folder / name / "timing.csv")
    seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    total = sum(timing["seconds"])
    return {
        "form": form,
        "policy": json.loads((folder / name / "config.json").read_text())["policy"],
        "frames_per_second": statistics.median(timing["frames_per_second"][1:]),
        "frames_per_processor_second": frames / seconds,
        "shares": {phase: sum(timing[phase]) / total for phase in PHASES},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=12_288)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--forms", nargs="+", default=FORMS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for form in options.forms:
            results.append(r := measure(form, options.frames, options.threads, Path(folder)))
            shares = ", ".join(f"{phase} {share:.0%}" for phase, share in r["shares"].items())
            print(f"{form:>24}: {r['policy']}, {r['frames_per_second']:.0f} frames/s, "
                  f"{r['frames_per_processor_second']:.0f} per processor second with the start; {shares}")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    met = all(r["frames_per_second"] > 200 and r["policy"] == "cnn" for r in results)
    print("bar met" if met else "bar NOT met")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
