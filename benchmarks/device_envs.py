"""Training beside stepping alone, in environments on the device: steps per second of both, in one run.

python benchmarks/device_envs.py                              # Craftax-Symbolic, 1,024 and 4,096 copies
python benchmarks/device_envs.py --env gymnax:CartPole-v1 --num-envs 64 --device cpu
python benchmarks/device_envs.py --num-envs 4096 --profile    # also where a rollout waits, and for what
python benchmarks/device_envs.py --num-envs 4096 --bonus e3b --precision bf16

It starts from the preset of the environment, and prints a line as soon as it has a value. The first lines are what
compilation took: with JAX_COMPILATION_CACHE_DIR set, a second call does not repeat that of the environment.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from rnd import envs
from rnd.api import starting_config
from rnd.config import Config
from rnd.envs.tensor_env import TensorEnvs
from rnd.training.random_agent import random_actions
from rnd.training.trainer import Trainer

WARM_UP = 6
"""Iterations before the clock starts: compilation, plain calls, and the capture of graphs."""
WAITS = ("ynchronize", "aten::item", "aten::_local_scalar_dense", "aten::nonzero", "Memcpy DtoH")
"""Names of a profile in which the host waits for the device, or copies from it."""


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextmanager
def timed(what: str, device: torch.device) -> Iterator[None]:
    start = time.perf_counter()
    yield
    synchronise(device)
    print(f"  {what}: {time.perf_counter() - start:.1f} s", flush=True)


def stepping_alone(env: TensorEnvs, steps: int) -> float:
    """Steps per second with random actions, which are drawn before. The clock starts after two steps: should the second
    be compiled once more, because the first returned other types than a reset, its line shows it."""
    random = np.random.default_rng(0)
    actions = torch.as_tensor(np.stack([random_actions(env, random) for _ in range(steps)])).to(env.device)
    with timed("first reset", env.device):
        env.reset()
    for name in ("first step", "second step"):
        with timed(name, env.device):
            env.step_tensors(actions[0]).obs.sum().item()
    synchronise(env.device)
    start = time.perf_counter()
    for action_N in actions:
        step = env.step_tensors(action_N)
    step.obs.sum().item()  # on the CPU JAX steps in a thread of its own
    synchronise(env.device)
    return steps * env.num_envs / (time.perf_counter() - start)


def started(config: Config, env: TensorEnvs) -> Trainer:
    trainer = Trainer(config, env)
    for _ in trainer.random_start():
        pass
    trainer.start()
    return trainer


def training(trainer: Trainer, rollouts: int) -> tuple[float, float]:
    """Steps per second of whole iterations, and the share of collecting in their time. Both parts of an iteration end
    with a value that the host reads, so that its clock is that of the device."""
    rows = trainer.train()
    with timed(f"{WARM_UP} iterations of warm-up", trainer.device):
        for _ in range(WARM_UP):
            next(rows)
    trainer.clock.lap()
    start = time.perf_counter()
    for _ in range(rollouts):
        next(rows)
    seconds = time.perf_counter() - start
    return rollouts * trainer.config.frames_per_rollout / seconds, 1 - trainer.clock.lap()["learning"] / seconds


def print_profile(trainer: Trainer) -> None:
    """A rollout in a few lines: its waits, where in the rollout they lie, and what the device spends its time on."""
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (trainer.device.type == "cuda")
    with profile(activities=kinds) as trace:
        trainer.collector.collect()
    events = list(trace.events() or [])
    first, last = min(e.time_range.start for e in events), max(e.time_range.end for e in events)
    found = [e for e in events if any(word in e.name for word in WAITS)]
    at = [f"{(e.time_range.start - first) / (last - first):.2f}" for e in found]
    print(
        f"  rollout of {trainer.config.rollout_steps} steps: {len(found)} waits, {dict(Counter(e.name for e in found))}"
    )
    print(f"  waits at (0 is the first step, 1 the end): {', '.join(at[:24]) or 'none'}")
    launches = Counter(e.name for e in events if "Launch" in e.name)
    print(f"  launches: {dict(launches)}")
    on_device = trainer.device.type == "cuda"
    times = {e.key: e.self_device_time_total if on_device else e.self_cpu_time_total for e in trace.key_averages()}
    for name, microseconds in Counter(times).most_common(8):
        print(f"  {microseconds / 1000:9.1f} ms  {name[:90]}", flush=True)


def measure(config: Config, rollouts: int, profiled: bool) -> None:
    name, num_envs = config.env.id, config.env.num_envs
    sizes = f"rollouts of {config.rollout_steps}, {config.epochs} epochs of {config.minibatches} minibatches"
    print(f"{name}, {num_envs:,} copies, bonus {config.bonus}, {config.precision}, {sizes}", flush=True)
    with closing(envs.make(config)) as env:
        assert isinstance(env, TensorEnvs), f"{name} does not step on the device"
        alone = stepping_alone(env, 256)
        print(f"  alone: {alone:,.0f} steps/s", flush=True)
        with timed("random agent", env.device):
            trainer = started(config, env)
        speed, collecting = training(trainer, rollouts)
        share = f"{speed / alone:.2f} of stepping alone; collecting is {collecting:.0%} of the time"
        print(f"  trained: {speed:,.0f} steps/s, {share}", flush=True)
        if profiled:
            print_profile(trainer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="craftax:Craftax-Symbolic-v1")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--bonus", default="rnd")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32", choices=("tf32", "float32", "bf16"))
    parser.add_argument("--rollouts", type=int, default=10)
    parser.add_argument("--profile", action="store_true", help="where a rollout waits for the device, in a few lines")
    args = parser.parse_args()
    for num_envs in args.num_envs:
        config = starting_config(args.env, {"bonus": args.bonus})
        config = replace(config, env=replace(config.env, num_envs=num_envs), device=args.device)
        config = replace(config, precision=args.precision, frames=1000 * config.frames_per_rollout)
        measure(config, args.rollouts, args.profile)


if __name__ == "__main__":
    main()
