"""From an environment's name to one environment. Worker processes import this: no torch."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from rnd.config import Config
from rnd.envs.spec import Cell
from rnd.envs.splitmix import environment_seed
from rnd.errors import UserError, nearest
from rnd.presets import ATARI_GAMES

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


def make_cell(config: Config, i: int) -> Cell:
    """Environment number `i` of a run."""
    env, seed = config.env, environment_seed(config.seed, i)
    if env.id.startswith("ALE/"):
        from rnd.envs.ale_cell import AleCell

        return AleCell(
            rom_of(env.id),
            env.id,
            seed,
            frame_skip=env.frame_skip,
            sticky=env.sticky,
            max_episode_frames=env.max_episode_frames,
            time_limits=config.bootstrap_truncated,
        )
    from rnd.envs.gym_cell import GymCell

    return GymCell(gym_factory(env.id), env.id, seed)


def rom_of(env_id: str) -> str:
    """`ALE/MontezumaRevenge-v5` -> `montezuma_revenge`."""
    from ale_py import roms

    known: dict[str, str] = {
        "".join(part.capitalize() for part in rom.split("_")): rom for rom in roms.get_all_rom_ids()
    }
    name = env_id.removeprefix("ALE/").removesuffix("-v5")
    if name not in known:
        choices = [*ATARI_GAMES, *(f"ALE/{game}-v5" for game in known)]
        raise UserError(f"unknown game {env_id}; {nearest(env_id, choices)}")
    return known[name]


def gym_factory(env_id: str) -> Callable[[], Any]:
    """What builds one environment: a Gymnasium id, or `module:function`."""
    if ":" in env_id:
        module, function = env_id.split(":", 1)
        try:
            factory: Callable[[], Any] = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise UserError(f"cannot load the environment factory {env_id}: {error}") from error
        return factory
    import gymnasium

    if env_id.startswith("MiniGrid-"):
        try:
            import minigrid  # noqa: F401  registers its environments
        except ImportError as error:
            raise UserError(f"{env_id} needs MiniGrid: pip install minigrid") from error
    if env_id not in gymnasium.registry:
        raise UserError(f"unknown environment {env_id}; {nearest(env_id, [*ATARI_GAMES, *gymnasium.registry])}")
    return partial(gymnasium.make, env_id, disable_env_checker=True)
