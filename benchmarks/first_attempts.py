"""Do the first snippets of the docs solve a sparse task when they are pasted? Four rooms, and a goal 44 moves away.

    python benchmarks/first_attempts.py [--what wrapper rndppo own-loop torchrl] [--times 5]

The blocks of docs/plugins.md are run as they are, without a seed, and the examples with a seed each; each in a process
of its own, with one thread. Solved means that 90% of 100 episodes in a row reached the goal at some time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCKS = {"wrapper": "VecNormalize(VecIntrinsicReward(", "rndppo": 'RNDPPO("MlpPolicy", venv, bonus='}
"""What the block of docs/plugins.md contains."""
EXAMPLES = {"own-loop": "own_ppo_loop", "torchrl": "torchrl_ppo"}
GOAL, WINDOW = 0.9, 100


def block(name: str) -> str:
    """The Python block of the page."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    (found,) = [part.split("```")[0] for part in text.split("```python")[1:] if BLOCKS[name] in part.split("```")[0]]
    return found


def attempt(name: str, seed: int) -> dict[str, Any]:
    """One run in this process."""
    from rnd.envs.four_rooms import FourRooms

    ends: list[bool] = []
    step = FourRooms.step

    def watched(self: FourRooms, out: Any, rows: slice) -> None:
        step(self, out, rows)
        for found, late in zip(out["terminated"][rows], out["truncated"][rows], strict=True):
            if found or late:
                ends.append(bool(found))

    FourRooms.step = watched  # type: ignore[method-assign]
    begun = time.process_time()
    if name in BLOCKS:
        exec(compile(block(name), name, "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, str(ROOT / "examples"))
        module = __import__(EXAMPLES[name])
        module.main(module.Args(seed=seed))
    best = max((sum(ends[i : i + WINDOW]) for i in range(len(ends) - WINDOW + 1)), default=0) / WINDOW
    last = sum(ends[-WINDOW:]) / WINDOW
    seconds = round(time.process_time() - begun, 1)
    return {"what": name, "seed": seed, "solved": best >= GOAL, "best": best, "last": last, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=[*BLOCKS, *EXAMPLES], default=[*BLOCKS, *EXAMPLES])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "SEED"), help="run this one here, and print JSON")
    flags = parser.parse_args()
    if flags.one:
        result = attempt(flags.one[0], int(flags.one[1]))
        print("\n" + json.dumps(result))
        return
    for what in flags.what:
        results = []
        for seed in range(1, flags.times + 1):
            command = [sys.executable, __file__, "--one", what, str(seed)]
            env = os.environ | {"OMP_NUM_THREADS": "1"}
            with tempfile.TemporaryDirectory() as folder:
                said = subprocess.check_output(command, text=True, cwd=folder, env=env)
            results.append(json.loads(said.strip().splitlines()[-1]))
            print(*results[-1].values(), sep=", ", flush=True)
        solved, seconds = sum(r["solved"] for r in results), max(r["seconds"] for r in results)
        print(f"{what}: {solved} of {len(results)} solved, at most {seconds} s of processor time", flush=True)


if __name__ == "__main__":
    main()
