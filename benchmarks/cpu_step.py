"""What small machines do, beside another commit: `rnd.Bonus` on a vector, and `rnd train` on 64x64 images.

    python benchmarks/cpu_step.py
    git archive --prefix=before/ COMMIT | tar -x -C /tmp
    python benchmarks/cpu_step.py --before /tmp/before/src

With `--before` the sources of another commit take turns with these, each in a process of its own; the smallest value of
each counts. Milliseconds of processor time, with one thread unless a line says two; of those also by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ENVS, STEPS, UPDATES, ROUNDS = 8, 128, 3, 3
SIDE, SCREENS, ITERATIONS = 64, 64, 5


def bonus() -> dict[str, float]:
    """Per step of 8 environments, per update, and per step with its share of the update."""
    import numpy as np
    import torch
    from gymnasium import spaces

    import rnd

    torch.set_num_threads(1)
    space, random = spaces.Box(-1, 1, (4,), np.float32), np.random.default_rng(0)
    bonus = rnd.Bonus("rnd", space, num_envs=ENVS, device="cpu")
    steps, updates = [], []
    for _ in range(UPDATES):
        begun = time.process_time()
        for obs in random.uniform(-1, 1, (STEPS, ENVS, 4)).astype(np.float32):
            bonus.observe(obs)
        observed = time.process_time()
        bonus.update()
        steps.append((observed - begun) / STEPS)
        updates.append(time.process_time() - observed)
    step, update = 1000 * min(steps), 1000 * min(updates)
    return {"bonus: step": step, "bonus: update": update, "bonus: step and update": step + update / STEPS}


def images() -> dict[str, float]:
    """Per frame of `rnd train`, the environments included."""
    found: dict[str, float] = {}
    for threads in (1, 2):
        processor, clock = training(threads)
        found[f"images: frame, threads {threads}"] = processor
        if threads > 1:
            found[f"images: frame, threads {threads}, by the clock"] = clock
    return found


def training(threads: int) -> tuple[float, float]:
    """Milliseconds per frame of the fastest iteration, of the processor and by the clock. The first one does not
    count."""
    from contextlib import closing
    from dataclasses import replace

    from rnd import envs
    from rnd.config.presets import small
    from rnd.training.trainer import Trainer

    config = replace(small("cpu_step:screens", "image"), bonus="rnd", device="cpu", threads=threads)
    config = replace(config, frames=config.frames_per_rollout * (ITERATIONS + 1))
    processor, clock = [], []
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        trainer.start()
        rows = trainer.train()
        next(rows)
        for _ in range(ITERATIONS):
            begun = time.process_time(), time.perf_counter()
            next(rows)
            processor.append(time.process_time() - begun[0])
            clock.append(time.perf_counter() - begun[1])
    return tuple(1000 * min(times) / config.frames_per_rollout for times in (processor, clock))  # type: ignore[return-value]


def screens() -> Any:
    """Colour images of 64x64 that cost nothing to make."""
    import gymnasium
    import numpy as np

    frames = np.random.default_rng(0).integers(0, 256, (SCREENS, SIDE, SIDE, 3), dtype=np.uint8)

    class Env(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(5)
        number = 0

        def reset(self, **given: Any) -> Any:
            super().reset(**given)
            self.number = 0
            return frames[0], {}

        def step(self, action: Any) -> Any:
            self.number += 1
            return frames[(self.number + int(action)) % SCREENS], 0.0, self.number == 500, False, {}

    return Env()


MEASURES = {"bonus": bonus, "images": images}


def in_process(sources: Path, what: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--what", what, "--one", str(sources)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=[*MEASURES], default=[*MEASURES])
    parser.add_argument("--before", type=Path, help="src/ of another commit")
    parser.add_argument("--one", type=Path, help="measure these sources in this process, and print JSON")
    flags = parser.parse_args()
    if flags.one:
        # an installation in place finds its own sources by a finder that is an object; Python's own are classes
        sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
        sys.path[:0] = [str(flags.one), str(Path(__file__).parent)]
        print(json.dumps(MEASURES[flags.what[0]]()))
        return
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # a thread that waits takes no processor time
    trees = {"now": Path(__file__).parents[1] / "src"} | ({"before": flags.before} if flags.before else {})
    for what in flags.what:
        rounds = [{name: in_process(sources, what) for name, sources in trees.items()} for _ in range(ROUNDS)]
        for line in rounds[0]["now"]:
            best = {name: min(one[name][line] for one in rounds) for name in trees}
            ratio = f", {best['before'] / best['now']:.2f} times less" if "before" in best else ""
            print(f"{line}: " + ", ".join(f"{name} {value:.2f} ms" for name, value in best.items()) + ratio, flush=True)


if __name__ == "__main__":
    main()
