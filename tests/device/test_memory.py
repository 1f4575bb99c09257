"""What counts as a lack of memory, and how much a run is said to need."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.distributed import DistBackendError

from rnd.config import Config
from rnd.data.normalize import STEPS_PER_PRODUCT
from rnd.device import memory
from rnd.envs.spec import ObservationSpec
from rnd.foundation.errors import RunError

ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"
)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(ALLOCATOR), RuntimeError(memory.ONEDNN)],
    ids=lambda error: type(error).__name__,
)
def test_a_lack_of_memory_gives_advice(error):
    with pytest.raises(RunError, match=r"memory ran out with 128 .* nearest: --env.num-envs"), memory.guarded(Config()):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError("loss"),
        RecursionError("maximum recursion depth exceeded"),
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered", 1),
        DistBackendError("NCCL error"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        NotImplementedError(ALLOCATOR),
        RuntimeError("could not create a primitive descriptor for the convolution forward propagation"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_another_error_stays_what_it_is(error):
    with pytest.raises(type(error)) as raised, memory.guarded(Config()):
        raise error
    assert raised.value is error


def test_the_weights_of_advantages_count_up_to_one_block():
    """Legend: T steps, N environments."""
    observation = ObservationSpec("vector", (4,))
    config = dataclasses.replace(Config(policy="mlp", minibatches=4), rollout_steps=STEPS_PER_PRODUCT)
    one = memory.needed(config, observation)
    assert one > 9 * config.env.num_envs * STEPS_PER_PRODUCT**2
    longer = memory.needed(dataclasses.replace(config, rollout_steps=100 * STEPS_PER_PRODUCT), observation)
    assert longer < 100 * one


def test_e3b_has_a_matrix_per_environment():
    """Inverses of k x k numbers, before and after a step."""
    observation, rnd = ObservationSpec("vector", (4,)), Config(env=dataclasses.replace(Config().env, num_envs=1024))
    e3b = dataclasses.replace(rnd, bonus="e3b")
    assert memory.needed(e3b, observation) - memory.needed(rnd, observation) == 2 * 4 * 1024 * 512 * 512
