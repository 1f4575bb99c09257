"""From an environment's name to the environments of a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Container
from functools import partial
from typing import Literal

import torch

from rnd.config import Config
from rnd.envs.factories import call_factory, gym_factory, make_env, reads
from rnd.envs.interface import VectorEnv
from rnd.envs.local import ArrayVectorEnv, LocalEnvs
from rnd.envs.tensor_env import TensorEnv, TensorEnvs
from rnd.foundation.errors import UserError
from rnd.foundation.launch import launched


def make(config: Config) -> VectorEnv:
    """The environments of a run, not yet reset."""
    env = config.env
    if env.id.startswith("ALE/"):
        return make_atari(config)
    if env.backend != "auto":
        raise UserError(f"--env.backend chooses an Atari emulator, and {env.id} is no Atari game; leave it out")
    if env.id.startswith("rnd/"):
        from rnd.envs.builtin import make_array_env

        return ArrayVectorEnv(make_array_env(env.id, env.num_envs, config.seed, env.first), env.num_envs)
    if ":" in env.id:
        from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

        device = torch.device("cuda", torch.cuda.current_device()) if on_gpu(config.device) else torch.device("cpu")
        made = call_factory(gym_factory(env.id), env.id, env.num_envs, device)
        if isinstance(made, TensorEnv):
            if env.workers:
                raise UserError(f"{env.id} steps on the device, without workers; leave out --env.workers")
            return TensorEnvs(made, env.id, env.num_envs, config.seed, device, env.first, reads(config))
        if isinstance(made, GymnasiumVectorEnv):
            from rnd.envs.gym_vector import GymVectorEnvs

            if env.workers:
                made.close()
                raise UserError(f"{env.id} is a vector environment, with workers of its own; leave out --env.workers")
            return GymVectorEnvs(made, env.id, env.num_envs, config.seed, env.first, reads(config))
        made.close()
    return make_single_envs(config, env.workers or 0)


def make_atari(config: Config) -> VectorEnv:
    """The native core where it can run the game, else ale-py in worker processes; `spec.backend` has the reason.

    A new Atari backend is its own file with a `VectorEnv`, a branch here, and a name in `EnvConfig.backend`.
    """
    workers = cores() if config.env.workers is None else config.env.workers
    if config.env.backend == "ale":
        return make_single_envs(config, workers)
    from rnd.envs.native_envs import NativeEnvs, unsupported_reason

    problem = unsupported_reason(config)
    if problem is None:
        threads = emulator_threads(cores(), on_gpu(config.device)) if config.env.workers is None else max(workers, 1)
        return NativeEnvs(config, threads, spin=on_gpu(config.device) and threads < cores())
    if config.env.backend == "native":
        raise UserError(f"the native core cannot run {config.env.id}: {problem}; nearest: --env.backend ale")
    return make_single_envs(config, workers, f"; native core: {problem}")


def as_saved(config: Config, state: Container[str]) -> Config:
    """`config` with the Atari backend that saved this state (its names): no other backend can load it."""
    if not config.env.id.startswith("ALE/"):
        return config
    from rnd.envs.native_envs import unsupported_reason

    backend: Literal["native", "ale"] = "native" if "env.native" in state else "ale"
    problem = unsupported_reason(config) if backend == "native" else None
    if problem:
        raise UserError(
            f"this run was saved by the native core, which cannot run here: {problem}; ale-py cannot load its states: "
            "install rnd where there is a C++ compiler"
        )
    return dataclasses.replace(config, env=dataclasses.replace(config.env, backend=backend))


def emulator_threads(cores: int, gpu: bool) -> int:
    """One per core; with a GPU one core stays free for the thread that launches its work."""
    return max(cores - gpu, 1)


def on_gpu(device: str) -> bool:
    """Whether a run with this --device puts its networks on a GPU."""
    return device != "cpu" and torch.cuda.is_available()


def make_single_envs(config: Config, workers: int, remark: str = "") -> VectorEnv:
    """Environments that are stepped one by one: in worker processes, or in this process where `workers` is 0."""
    num_envs = config.env.num_envs
    if workers == 0:
        envs = LocalEnvs(partial(make_env, config), num_envs)
        envs.spec = dataclasses.replace(envs.spec, backend=f"{envs.spec.backend}, in this process{remark}")
        return envs
    from rnd.envs.workers import WorkerEnvs

    return WorkerEnvs(config, min(workers, num_envs), remark=remark)


def cores() -> int:
    """Cores that this process may use: its share where several ranks run on this machine."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, found // launched().local_world)
