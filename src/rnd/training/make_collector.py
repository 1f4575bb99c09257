"""Which collector a run has."""

from __future__ import annotations

import copy

from torch import Generator, device

from rnd.config import Config
from rnd.envs.interface import VectorEnv
from rnd.envs.tensor_env import TensorEnvs
from rnd.foundation.errors import UserError
from rnd.models.policy.base import Policy
from rnd.training.collector import Collector, SynchronousCollector
from rnd.training.overlap import OverlappedCollector
from rnd.training.tensor_collector import TensorCollector


def make_collector(
    config: Config, env: VectorEnv, policy: Policy, where: device, generator: Generator, episode_memory: int
) -> Collector:
    """Beside the environments, on the device with them, or in a thread with a policy of its own (`--overlap`)."""
    if isinstance(env, TensorEnvs):
        if config.overlap:
            raise UserError(f"{env.spec.id} steps on the device, where --overlap hides nothing; leave it out")
        return TensorCollector(config, env, policy, where, generator, episode_memory)
    acting = copy.deepcopy(policy) if config.overlap else policy
    inner = SynchronousCollector(config, env, acting, where, generator, episode_memory)
    return OverlappedCollector(inner, policy) if config.overlap else inner
