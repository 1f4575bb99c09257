"""How much memory a run needs. A run that cannot fit is refused before it starts, with one that can.

Legend: T steps, N environments, S stacked frames.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch

from rnd.config import Config
from rnd.envs.spec import ObservationSpec
from rnd.foundation.errors import RunError, UserError

PER_STEP = 64
"""Bytes per step and environment besides observation and features: action, values, rewards, noise, advantages."""
ACTIVATIONS_PER_FRAME = 300_000
"""Bytes that the convolutions hold for one stack of frames while a minibatch is optimised. 0.6 MB were measured on the
CPU; half of it is counted, so that nothing is refused that would fit."""
USABLE = 0.9
"""Share of the memory that advised sizes use."""


def guess_observation(config: Config) -> ObservationSpec:
    """Used before an environment is built: exact for Atari; a lower bound (one number) for others."""
    return ObservationSpec("image", (84, 84)) if config.env.id.startswith("ALE/") else ObservationSpec("vector", (1,))


def needed(config: Config, observation: ObservationSpec) -> int:
    """Bytes of the rollout and of one minibatch: a lower bound, proportional to N and T where they are large."""
    samples = config.rollout_steps * config.env.num_envs
    size = math.prod(observation.shape) * int(np.dtype(observation.dtype).itemsize)
    image = observation.kind == "image"
    frames = (config.rollout_steps + observation.stack) * config.env.num_envs * size
    width = getattr(config.policy_options, "width", 0)
    features = 0 if config.bonus == "none" else 4 * config.bonus_options.features
    activations = ACTIVATIONS_PER_FRAME if image else 4 * (math.prod(observation.shape) + 4 * width)
    return frames + samples * (PER_STEP + features) + samples // config.minibatches * activations


def available(device: torch.device) -> int | None:
    """Free bytes on a device; None where that is unknown. On the CPU, also those below a container's limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free, group = [], Path("/sys/fs/cgroup")
    with suppress(OSError):
        found = re.search(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text())
        free += [int(found[1]) * 1024] if found else []
    with suppress(OSError, ValueError):  # a limit of "max" is no number
        free += [max(0, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))]
    return min(free, default=None)


def check(config: Config, observation: ObservationSpec, device: torch.device) -> None:
    """Refuse a run that cannot fit, with one that can."""
    need, free = needed(config, observation), available(device)
    if free is not None and need > free:
        raise UserError(
            f"{config.env.num_envs} environments x {config.rollout_steps} steps need at least {_gb(need)} on {device}, "
            f"where {_gb(free)} are free; {advice(config, free / need)}"
        )


def advice(config: Config, share: float) -> str:
    """The nearest sizes that need `share` of the memory."""
    m = config.minibatches
    envs = int(config.env.num_envs * share * USABLE) // m * m
    if envs >= m:
        return f"nearest: --env.num-envs {envs}"
    return f"nearest: --env.num-envs {m} --rollout-steps {max(1, int(config.rollout_steps * share * USABLE))}"


@contextmanager
def guarded(config: Config) -> Iterator[None]:
    """If memory runs out all the same, the run ends with advice instead of a traceback."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
        if type(error) is RuntimeError and "allocate memory" not in str(error):
            raise
        raise RunError(
            f"memory ran out with {config.env.num_envs} environments x {config.rollout_steps} steps; "
            f"{advice(config, 0.5)}, or a larger --minibatches"
        ) from error


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
