"""The environments that come with rnd, by name: `rnd/DeepSea-4` to `rnd/DeepSea-64`, `rnd/FourRooms`, `rnd/NoisyTV`."""

from __future__ import annotations

from functools import partial

from rnd.envs.array_env import ArrayEnv, SingleEnv
from rnd.envs.deep_sea import SIZES, DeepSea
from rnd.envs.four_rooms import FourRooms
from rnd.envs.noisy_tv import NoisyTV
from rnd.foundation.errors import UserError, nearest

NAMES = ("rnd/FourRooms", "rnd/NoisyTV", *(f"rnd/DeepSea-{size}" for size in SIZES))


def make_array_env(env_id: str, num_envs: int, seed: int, first: int = 0) -> ArrayEnv:
    """The environments of a run, numbered from `first`. The seed sets what DeepSea's actions mean, and which channels
    the television shows."""
    if env_id not in NAMES and env_id.startswith("rnd/DeepSea-"):
        raise UserError(f"unknown environment {env_id}; rnd/DeepSea-{SIZES[0]} to rnd/DeepSea-{SIZES[-1]} exist")
    if env_id not in NAMES:
        raise UserError(f"unknown environment {env_id}; {nearest(env_id, NAMES)}")
    if env_id == "rnd/FourRooms":
        return FourRooms(num_envs)
    if env_id == "rnd/NoisyTV":
        return NoisyTV(num_envs, seed, first)
    return DeepSea(int(env_id.rpartition("-")[2]), num_envs, mapping_seed=seed)


def deep_sea_env(size: int, mapping_seed: int = 0) -> SingleEnv:
    """DeepSea for Gymnasium. The meaning of the actions is part of the problem: `reset(seed=...)` keeps it."""
    return SingleEnv(lambda _: DeepSea(size, 1, mapping_seed))


def four_rooms_env() -> SingleEnv:
    """FourRooms for Gymnasium."""
    return SingleEnv(lambda _: FourRooms(1))


def noisy_tv_env() -> SingleEnv:
    """NoisyTV for Gymnasium."""
    return SingleEnv(partial(NoisyTV, 1))


def register() -> None:
    """Register the environments with Gymnasium."""
    import gymnasium

    gymnasium.register("rnd/FourRooms", entry_point="rnd.envs.builtin:four_rooms_env")
    gymnasium.register("rnd/NoisyTV", entry_point="rnd.envs.builtin:noisy_tv_env")
    for size in SIZES:
        gymnasium.register(f"rnd/DeepSea-{size}", entry_point="rnd.envs.builtin:deep_sea_env", kwargs={"size": size})
