"""From an environment's name to one environment. Worker processes import this: no torch."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rnd.config import Config, Reads
from rnd.config.components import import_module, module_of
from rnd.config.presets import ATARI_GAMES, Kind, is_minigrid
from rnd.envs import builtin
from rnd.envs.observations import make_encoder
from rnd.envs.process_io import user_code
from rnd.envs.spec import Env, ObservationSpec
from rnd.envs.splitmix import environment_seed
from rnd.foundation.errors import UserError, nearest

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


def make_env(config: Config, i: int) -> Env:
    """Environment number `i` of a run."""
    env, seed = config.env, environment_seed(config.seed, config.env.first + i)
    if env.id.startswith("ALE/"):
        from rnd.envs.ale_env import AleEnv

        return AleEnv(
            rom_of(env.id),
            env.id,
            seed,
            frame_skip=env.frame_skip,
            sticky=env.sticky,
            max_episode_frames=env.max_episode_frames,
            time_limits=config.bootstrap_truncated,
        )
    from rnd.envs.gym_env import GymEnv

    factory = partial(call_factory, gym_factory(env.id), env.id, env.num_envs)
    return GymEnv(factory, env.id, seed, reads(config))


def reads(config: Config) -> Reads:
    """What of observations with images is read: everything as a vector where the policy reads nothing else."""
    return "vector" if config.policy == "mlp" else config.env.reads


def kind_of(game: str, reads: Reads = "all") -> Kind:
    """What the networks will get from a game. Makes one environment where its name does not say so. `reads`: what of
    observations with images."""
    if game in ATARI_GAMES or game.startswith("ALE/"):
        return "image"
    if game.startswith(("rnd/", "navix:", "craftax:")) or is_minigrid(game):
        return "choices"
    with closing(call_factory(gym_factory(game), game, num_envs=1)) as env:
        space = getattr(env, "single_observation_space", env.observation_space)
        return kind_of_observation(make_encoder(space, game, reads)[0])


def kind_of_observation(observation: ObservationSpec) -> Kind:
    """Which kind of the presets the networks read."""
    if observation.kind != "vector":
        return "image+vector" if observation.vector_size else "image"
    return "choices" if observation.one_hot and all(observation.one_hot) else "numbers"


def rom_of(env_id: str) -> str:
    """`ALE/MontezumaRevenge-v5` -> `montezuma_revenge`. ale-py has programs that it cannot run: they have no id."""
    import ale_py  # noqa: F401  registers its games
    import gymnasium

    registered = {name: str(spec.kwargs.get("game")) for name, spec in gymnasium.registry.items()}
    name = f"{env_id.removesuffix('-v5')}-v5"
    if name not in registered:
        choices = [*ATARI_GAMES, *(name for name in registered if name.startswith("ALE/"))]
        raise UserError(f"unknown game {env_id}; {nearest(env_id, choices)}")
    return registered[name]


INTERFACE = ("reset", "step", "close", "action_space", "observation_space")
"""What rnd uses of a Gymnasium environment."""


def call_factory(factory: Callable[..., Any], env_id: str, num_envs: int, device: Any = "cpu") -> Any:
    """The factory's environment; a factory that takes `num_envs` gets the number of environments of the run, one that
    takes `device` the device that the run is computed on."""
    with suppress(ValueError):  # a function in C may have no signature
        given, known = {"num_envs": num_envs, "device": device}, inspect.signature(factory).parameters
        factory = partial(factory, **{name: value for name, value in given.items() if name in known})
        try:
            inspect.signature(factory).bind()
        except TypeError as error:
            raise UserError(
                f"{env_id} is {error}; rnd gives it none but num_envs and device: give it a default"
            ) from None
    with user_code(f"the factory {env_id}"):
        made = factory()
    if made is None:
        raise UserError(f"{env_id} returned nothing; let it return the environment")
    kind, missing = type(made).__name__, [name for name in INTERFACE if not hasattr(made, name)]
    if {"reset", "step", "close"} & {*missing}:
        raise UserError(f"{env_id} made no Gymnasium environment but {kind}; see docs/environments.md")
    if missing:
        raise UserError(
            f"{env_id}: {kind} has no {' and no '.join(missing)}; set it in __init__, as a gymnasium.spaces.Box"
        )
    return made


def gym_factory(env_id: str) -> Callable[..., Any]:
    """The function that makes an environment, from a Gymnasium id, `module:function`, or `module:id`, which Gymnasium
    has too: the id is one that the module registers."""
    if ":" not in env_id:
        return partial(_make_gym, env_id)
    if env_id.partition(":")[0] in JAX_SUITES:
        from rnd.envs.jax_env import make_jax_env

        return partial(make_jax_env, env_id)
    import gymnasium

    module, name = import_module(env_id, "environment"), env_id.partition(":")[2]
    if not hasattr(module, name) and name in gymnasium.registry:
        return partial(_make_gym, name)
    if not hasattr(module, name) and env_id.startswith("__main__:"):
        raise UserError(
            f"{env_id} is a function of the program that trained this: use rnd.load there, or train the function of a "
            "module, module:function"
        )
    if not hasattr(module, name):
        public = [word for word in dir(module) if not word.startswith("_")]
        choices = nearest(name, [*public, *gymnasium.registry])
        raise UserError(f"{env_id}: its module has no function {name!r} and registers no such id; {choices}")
    factory: Callable[..., Any] = getattr(module, name)
    if not callable(factory):
        raise UserError(f"{env_id} is no function but {type(factory).__name__}; see docs/environments.md")
    return factory


JAX_SUITES = ("gymnax", "craftax", "navix", "brax")
"""What stands before the colon in ids of environments written in JAX."""

PACKAGES = {
    ("MiniGrid-", "BabyAI-"): ("minigrid", "minigrid"),
    ("MiniWorld-",): ("miniworld", "miniworld"),
    ("AntMaze_", "PointMaze_", "Fetch", "AdroitHand", "FrankaKitchen-"): ("gymnasium_robotics", "gymnasium-robotics"),
    ("procgen",): ("procgen", "procgen"),
    ("Vizdoom",): ("vizdoom.gymnasium_wrapper", "vizdoom"),
    ("highway-",): ("highway_env", "highway-env"),
    ("NetHack",): ("nle", "nle"),
    ("MiniHack-",): ("minihack", "minihack"),
}
"""First letters of ids that another package registers: its module, and what to install."""

EXTRAS = {
    "gymnasium.envs.mujoco": '"gymnasium[mujoco]"',
    "gymnasium.envs.box2d": "Box2D",  # the extra of Gymnasium below 1.4 needs swig and a compiler
    "gymnasium.envs.toy_text": '"gymnasium[toy-text]"',
}
"""Modules of Gymnasium that need more: what to install."""


def _make_gym(env_id: str, **options: Any) -> Any:
    """The environment of a Gymnasium id. Imports the package that registers it; an error names what is missing."""
    import gymnasium

    for starts, (module, package) in PACKAGES.items():
        if env_id.startswith(starts):
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise UserError(f"{env_id} needs a package that is not installed: pip install {package}") from error
    if env_id not in gymnasium.registry:
        for module, _ in PACKAGES.values():
            with suppress(Exception):  # those that are installed add their names
                importlib.import_module(module)
        if env_id.endswith(".py") or any(file.name == f"{env_id}.py" for file in Path().iterdir()):
            raise UserError(
                f"unknown environment {env_id}; nearest: {module_of(env_id)}:FUNCTION, its function that makes one"
            )
        choices = [*ATARI_GAMES, *ATARI_GAMES.values(), *builtin.NAMES, *gymnasium.registry]
        raise UserError(f"unknown environment {env_id}; {nearest(env_id, choices)}")
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ImportError) as error:
        entry = str(gymnasium.registry[env_id].entry_point)
        for module, package in EXTRAS.items():
            if entry.startswith(module) and isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError):
                raise UserError(f"{env_id} needs a package that is not installed: pip install {package}") from error
        raise UserError(f"{env_id} cannot be made: {error}") from error
