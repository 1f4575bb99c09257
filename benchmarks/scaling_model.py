"""Throughput of a run on many GPUs, from measured constants: `python benchmarks/scaling_model.py`.

A small simulation of one iteration on every rank: acting (environments on the rank's share of the cores, the policy on
its GPU, two groups of environments side by side), then learning, with the messages between the ranks. Every rank has
128 environments, as in the paper; iterations are as slow as their slowest rank, so the time of emulation is drawn for
each of them. docs/scaling.md says what the constants are and where they come from.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields, replace

import numpy as np


@dataclass(frozen=True)
class Constants:
    """Inputs. Measured ones say where; the rest are assumptions, to be replaced by those of your cluster."""

    envs: int = 128
    """Environments of a rank."""
    steps: int = 128
    """Steps of a rollout."""
    frame_skip: int = 4
    cores: float = 16
    """Cores of a GPU's share."""
    emulator: float = 27_700
    """Frames/s of one core; measured, 442,826 on 16 cores with the native core (ale-py: 4,000)."""
    learner: float = 0.0677
    """Seconds to learn from one rollout of 128 environments; measured on an H200, TF32 (bf16: 0.055)."""
    rest: float = 0.008
    """Seconds of an iteration beside: measured, 65,536 frames / 292,939 frames/s less emulator and learner alone."""
    ungraphed: float = 1.0
    """Factor on `learner` with several ranks, whose epoch is not one captured graph. Not measured: 1."""
    inference: float = 0.00017
    """Seconds of the policy for a group of 64 environments; measured on an H200: 19.9% of 224 ms, 258 times."""
    spread: float = 0.05
    """Deviation of a rank's emulation time, as a share of it. Assumption."""
    parameters: float = 3.43e6
    """Trained parameters, 4 bytes each in a message: the CNN policy (1.22 M) with the RND predictor (2.20 M)."""
    updates: int = 16
    """Optimiser steps per iteration: 4 epochs of 4 minibatches."""
    statistics: int = 2 * 84 * 84 * 8
    """Bytes of the observation statistics' two sums."""
    gpus_per_node: int = 8
    nvlink: float = 200e9
    """Bytes/s of an all-reduce inside a node. Assumption."""
    network: float = 40e9
    """Bytes/s of an all-reduce between nodes, a node's GPUs together. Assumption."""
    latency: float = 20e-6
    """Seconds of one message's hop, times the logarithm of the number of nodes. Assumption."""
    checkpoint_minutes: float = 10
    disk: float = 34e6
    """Bytes/s at which rank 0 writes a checkpoint; measured, 64.8 MB in 1.91 s on a busy machine of two cores."""
    shared_bytes: float = 47.9e6
    """Bytes of a checkpoint that all ranks share: networks and optimiser; measured with --bytes."""
    environment_bytes: float = 103.4e3
    """Bytes of one environment in a checkpoint: 75,206 of its own and 4 frames of the collector; measured likewise."""


@dataclass(frozen=True)
class Forecast:
    """One size."""

    gpus: int
    acting: float
    learning: float
    messages: float
    checkpoint: float
    """Seconds an iteration, of each."""
    waiting: float
    """Seconds an iteration that the average rank waits for the slowest."""
    frames_per_second: float
    efficiency: float
    """Against as many GPUs as one alone."""


def simulate(c: Constants, gpus: int, iterations: int = 400, seed: int = 0) -> Forecast:
    """Draw iterations of all ranks; the slowest decides."""
    random = np.random.default_rng(seed)
    frames = c.envs * c.steps * c.frame_skip
    emulation = frames / (c.cores * c.emulator)
    # Two groups: while one steps, the policy is evaluated for the other. What is longer decides.
    policy = 2 * (c.steps + 1) * c.inference
    drawn = emulation * (1 + c.spread * random.standard_normal((iterations, gpus)).clip(-3, 3))
    acting = np.maximum(drawn, policy) + c.inference
    slowest = acting.max(1)
    learning = c.learner * (c.ungraphed if gpus > 1 else 1)
    messages = reduce_seconds(c, gpus, 4 * c.parameters) * c.updates + 2 * reduce_seconds(c, gpus, c.statistics / 2)
    iteration = slowest.mean() + learning + messages + c.rest
    size = c.shared_bytes + gpus * c.envs * c.environment_bytes
    checkpoint = size / c.disk * iteration / (60 * c.checkpoint_minutes)
    seconds = iteration + checkpoint
    waiting = float((slowest - acting.mean(1)).mean())
    return Forecast(gpus, float(acting.mean()), learning, messages, checkpoint, waiting, gpus * frames / seconds, 0.0)


def reduce_seconds(c: Constants, gpus: int, size: float) -> float:
    """An all-reduce: 2 (n - 1) / n of the bytes pass every link, in the node and then between nodes."""
    if gpus == 1:
        return 0.0
    inside = min(gpus, c.gpus_per_node)
    nodes = max(1, gpus // c.gpus_per_node)
    seconds = 2 * (inside - 1) / inside * size / c.nvlink + c.latency
    if nodes > 1:
        seconds += 2 * (nodes - 1) / nodes * size / c.network + c.latency * np.log2(nodes)
    return float(seconds)


def table(c: Constants, sizes: list[int]) -> str:
    alone = simulate(c, 1).frames_per_second
    lines = [
        "| GPUs | environments | acting | waiting | learning | messages | checkpoints | frames/s | efficiency |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for gpus in sizes:
        f = simulate(c, gpus)
        f = replace(f, efficiency=f.frames_per_second / (gpus * alone))
        times = " | ".join(f"{1e3 * t:.1f} ms" for t in (f.acting, f.waiting, f.learning, f.messages, f.checkpoint))
        lines.append(
            f"| {gpus} | {gpus * c.envs:,} | {times} | {f.frames_per_second / 1e6:.2f} M | {f.efficiency:.0%} |"
        )
    return "\n".join(lines)


def measure_bytes(envs: int) -> str:
    """What a checkpoint of one rank holds, with Adam's moments filled and the native core."""
    from contextlib import closing

    from checkpoint import prepared
    from rnd import envs as environments
    from rnd.checkpoint.checkpoint import pack
    from rnd.config.presets import preset

    config = preset("montezuma")
    config = replace(config, device="cpu", env=replace(config.env, num_envs=envs, backend="native"))
    with closing(environments.make(config)) as env:
        state = prepared(config, env).state_dict()
    size = {}
    for name, part in state.items():
        tensors: dict = {}
        pack(part, name, tensors)
        size[name] = sum(tensor.nbytes for tensor in tensors.values())
    shared = size["policy"] + size["bonus"] + size["optimizer"]
    return (
        f"shared by all ranks {shared:,}; an environment {(size['env'] + size['collector']) / envs:,.0f}: "
        f"its own {size['env'] / envs:,.0f}, the collector's {size['collector'] / envs:,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Constants):
        default = field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--bytes", action="store_true", help="measure the bytes of a checkpoint instead")
    options = vars(parser.parse_args())
    sizes = options.pop("gpus")
    if options.pop("bytes"):
        print(measure_bytes(options["envs"]))
        return
    print(table(Constants(**options), sizes))


if __name__ == "__main__":
    main()
