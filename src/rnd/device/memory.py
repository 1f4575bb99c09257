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
from rnd.data.normalize import STEPS_PER_PRODUCT
from rnd.envs.spec import ObservationSpec
from rnd.foundation.errors import RunError, UserError

PER_STEP = 64
"""Bytes per step and environment besides observation and features: action, values, rewards, noise, advantages."""
ACTIVATIONS_PER_FRAME = 300_000
"""Bytes that the convolutions hold for one stack of frames while a minibatch is optimised. 0.6 MB were measured on the
CPU; half of it is counted, so that nothing is refused that would fit."""
PER_WEIGHT = 9
"""Bytes of one weight of a step's advantage (`training/returns.py`): a float64, and whether it is of its episode."""
OUT_OF_MEMORY = ("allocate memory", "out of memory", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED")
"""What PyTorch's errors without a class of their own say."""
ONEDNN = "could not create a primitive"
"""All that oneDNN says where it has no memory for a convolution. With more words ("... descriptor") it is another
error."""
USABLE = 0.9
"""Share of the memory that advised sizes use."""


def guess_observation(config: Config) -> ObservationSpec:
    """Used before an environment is built: exact for Atari; a lower bound (one number) for others."""
    return ObservationSpec("image", (84, 84)) if config.env.id.startswith("ALE/") else ObservationSpec("vector", (1,))


def needed(config: Config, observation: ObservationSpec) -> int:
    """Bytes of the rollout, and of its advantages or one minibatch: a lower bound, proportional to N and T where they
    are large."""
    samples = config.rollout_steps * config.env.num_envs
    size = math.prod(observation.shape) * int(np.dtype(observation.dtype).itemsize)
    image = observation.kind != "vector"
    frames = (config.rollout_steps + observation.stack) * config.env.num_envs * size
    width = getattr(config.policy_options, "width", 0)
    features = 0 if config.bonus == "none" else 4 * config.bonus_options.features
    activations = ACTIVATIONS_PER_FRAME if image else 4 * (math.prod(observation.shape) + 4 * width)
    if config.bonus == "e3b":  # a matrix per environment, and the one that it becomes in a step
        frames += 2 * 4 * config.env.num_envs * config.bonus_options.features**2
    weights = PER_WEIGHT * config.env.num_envs * min(config.rollout_steps, STEPS_PER_PRODUCT) ** 2
    return frames + samples * (PER_STEP + features) + max(weights, samples // config.minibatches * activations)


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
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise RunError(
            f"memory ran out with {config.env.num_envs} environments x {config.rollout_steps} steps; "
            f"{advice(config, 0.5)}, or a larger --minibatches"
        ) from error


def lacks_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out. Other subclasses of RuntimeError (NotImplementedError, RecursionError,
    torch.AcceleratorError) never do, whatever their text."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return type(error) is RuntimeError and (text == ONEDNN or any(part in text for part in OUT_OF_MEMORY))


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
