"""From an environment's name to the environments of a run."""

from __future__ import annotations

import os
from functools import partial

from rnd.config import Config
from rnd.envs.cells import make_cell
from rnd.envs.interface import VectorEnv
from rnd.envs.local import LocalEnvs


def make(config: Config) -> VectorEnv:
    """The environments of a run, not yet reset."""
    env = config.env
    if env.id.startswith("rnd/"):
        from rnd.envs.batch_envs import BatchEnvs
        from rnd.envs.own import make_batch

        return BatchEnvs(make_batch(env.id, env.num_envs, config.seed), env.num_envs)
    workers = default_workers(config)
    if workers == 0:
        return LocalEnvs(partial(make_cell, config), env.num_envs)
    from rnd.envs.workers import WorkerEnvs

    return WorkerEnvs(config, workers)


def default_workers(config: Config) -> int:
    """Worker processes: as many as asked for, else one a core for Atari and none for the rest."""
    wanted = config.env.workers
    if wanted is None:
        wanted = cores() if config.env.id.startswith("ALE/") else 0
    return min(wanted, config.env.num_envs)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
