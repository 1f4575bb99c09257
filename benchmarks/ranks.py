"""Two ranks against one, the environments being the load, a thread each: `python benchmarks/ranks.py`.

Every round trains with one rank, with two, and with two runs that know nothing of each other, for a few seconds each
after a warm-up, and gives the ratios of their frames a second. The last is what the machine can give: shared caches,
hyper-threads and other people's work lower it. The environments are MiniGrid's, stepped in the rank's own process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from statistics import median

from rnd.config import BonusOptions, Config
from rnd.config.presets import preset
from rnd.models.policy.mlp import WidthOptions

GAME = "MiniGrid-MultiRoom-N4-S5-v1"
WARM_UP = 2


def config_of(envs: int) -> Config:
    """Small networks and one epoch: what takes time is stepping."""
    config = preset(GAME)
    return replace(
        config,
        env=replace(config.env, num_envs=envs, workers=0),
        bonus_options=BonusOptions(features=16, hidden=32, random_steps=0),
        policy_options=WidthOptions(32),
        epochs=1,
        device="cpu",
        threads=1,
        frames=10**9,
    )


def rank(envs: int, seconds: float) -> None:
    """What torchrun starts: train, and let rank 0 tell the speed of all."""
    from rnd import envs as environments
    from rnd.distributed import process_group
    from rnd.training.trainer import Trainer

    with process_group() as everyone:
        ranks = everyone.on("cpu")
        config = ranks.config_of_new_run(config_of(envs))
        env = environments.make(config)
        trainer = Trainer(config, env, ranks)
        trainer.start()
        training = trainer.train()
        for _ in range(WARM_UP):
            next(training)
        trainer.collector.clock.lap()
        ranks.largest(0)  # all begin together
        begun, iterations = time.perf_counter(), 0
        while ranks.largest(time.perf_counter() - begun)[0] < seconds:
            next(training)
            iterations += 1
        taken = time.perf_counter() - begun
        share = trainer.collector.clock.lap()["emulation"] / taken
        if ranks.is_rank0:
            speed = iterations * config.frames_per_rollout / taken
            print(json.dumps({"frames_per_second": speed, "emulation": share}))
        env.close()


def measure(world: int, envs: int, seconds: float, runs: int = 1) -> dict[str, float]:
    """Speed of `runs` runs at once, of `world` ranks each."""
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    command = [*program, __file__, "--rank", "--envs", str(envs), "--seconds", str(seconds)]
    pipe, environment = subprocess.PIPE, os.environ | {"OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) for _ in range(runs)]
    found = []
    for process in started:
        said, problem = process.communicate()
        if process.returncode:
            sys.exit(problem)
        found.append(json.loads(said.strip().splitlines()[-1]))
    return {
        "frames_per_second": sum(run["frames_per_second"] for run in found),
        "emulation": median(run["emulation"] for run in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=32, help="environments of every rank")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.envs, options.seconds)
        return
    ratios, limits = [], []
    for _ in range(options.rounds):
        one, many = (measure(world, options.envs, options.seconds) for world in (1, options.world))
        apart = measure(1, options.envs, options.seconds, runs=options.world)
        ratios.append(many["frames_per_second"] / one["frames_per_second"])
        limits.append(apart["frames_per_second"] / one["frames_per_second"])
        print(
            f"1 rank {one['frames_per_second']:,.0f} frames/s ({one['emulation']:.0%} of the time in environments), "
            f"{options.world} ranks {many['frames_per_second']:,.0f} frames/s: {ratios[-1]:.2f} ×; "
            f"{options.world} separate runs: {limits[-1]:.2f} ×",
            flush=True,
        )
    print(f"median of {options.rounds} rounds: {median(ratios):.2f} × with ranks, {median(limits):.2f} × apart")


if __name__ == "__main__":
    main()
