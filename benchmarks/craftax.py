"""Training beside stepping alone, in environments on the device: steps per second of both, in one run.

python benchmarks/craftax.py                                  # Craftax-Symbolic, 1,024 and 4,096 copies
python benchmarks/craftax.py --env gymnax:CartPole-v1 --num-envs 64 --device cpu
python benchmarks/craftax.py --profile trace.json             # one rollout; no aten::item or cudaStreamSynchronize
                                                              # may lie between its first step and its last
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from dataclasses import replace

import torch
from torch.profiler import ProfilerActivity, profile

from rnd import envs
from rnd.config.presets import small
from rnd.envs.tensor_env import TensorEnvs
from rnd.training.trainer import Trainer


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def stepping_alone(env: TensorEnvs, steps: int) -> float:
    """Steps per second with random actions, which are drawn before."""
    choices = env.spec.action.sizes[0]
    actions = torch.randint(0, choices, (steps, env.num_envs), device=env.device)
    env.reset()
    env.step_tensors(actions[0])
    synchronise(env.device)
    start = time.perf_counter()
    for action_N in actions:
        step = env.step_tensors(action_N)
    synchronise(env.device)
    step.obs.sum().item()  # on the CPU JAX steps in a thread of its own
    return steps * env.num_envs / (time.perf_counter() - start)


def training(trainer: Trainer, warm_up: int, rollouts: int) -> float:
    """Steps per second of whole iterations, after those in which graphs are captured."""
    rows = trainer.train()
    for _ in range(warm_up):
        next(rows)
    start = time.perf_counter()
    for _ in range(rollouts):
        next(rows)
    return rollouts * trainer.config.frames_per_rollout / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="craftax:Craftax-Symbolic-v1")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--bonus", default="rnd")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rollouts", type=int, default=10)
    parser.add_argument("--profile", help="write a trace of one rollout here")
    args = parser.parse_args()
    for num_envs in args.num_envs:
        config = small(args.env)
        config = replace(config, env=replace(config.env, num_envs=num_envs), bonus=args.bonus, device=args.device)
        config = replace(config, frames=1000 * config.frames_per_rollout)
        with closing(envs.make(config)) as env:
            assert isinstance(env, TensorEnvs), f"{args.env} does not step on the device"
            alone = stepping_alone(env, 256)
            trainer = Trainer(config, env)
            for _ in trainer.random_start():
                pass
            trainer.start()
            speed = training(trainer, 6, args.rollouts)
            share = f"{speed / alone:.2f} of stepping alone"
            print(f"{args.env}, {num_envs:,} copies: {alone:,.0f} steps/s alone, {speed:,.0f} trained: {share}")
            if args.profile:
                with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
                    trainer.collector.collect()
                trace.export_chrome_trace(args.profile)


if __name__ == "__main__":
    main()
