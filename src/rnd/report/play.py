"""One episode of a trained agent, step by step, exactly repeatable from a seed.

The collector of training plays it with one environment and rollouts of one step, so that stacking, memory and sampling
are the same code. The bonus whitens what it sees, as in training: feeding it raw frames is a common mistake.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from rnd import envs
from rnd.config import Config
from rnd.envs.factories import gym_factory, make_env
from rnd.envs.gym_env import GymEnv
from rnd.envs.interface import VectorEnv
from rnd.envs.local import LocalEnvs
from rnd.envs.splitmix import environment_seed
from rnd.errors import UserError
from rnd.record.export import Agent
from rnd.report.events import Events
from rnd.rollout import Collector

LONGEST = 100_000
"""Steps after which an episode without end is cut."""


@dataclass(frozen=True)
class Moment:
    """One step: the bonus of the observation that it led to, and what happened."""

    step: int
    bonus: float
    reward: float
    score: float
    """The return so far, unclipped."""
    room: int
    lives: int
    events: tuple[str, ...]
    screen: np.ndarray | None
    """RGB, where it was asked for."""


@dataclass
class Episode:
    """An episode without its pictures."""

    seed: int
    """Number of the episode: it can be played again."""
    moments: list[Moment] = field(default_factory=list)
    score: float = 0.0

    @property
    def bonus(self) -> np.ndarray:
        return np.array([moment.bonus for moment in self.moments])


def play(agent: Agent, seed: int, number: int, *, screens: bool) -> Iterator[Moment]:
    """Episode `number` of a seed. The last step leads to the next episode's first observation: it has no bonus here."""
    config = _single(agent.config)
    env, cell = environment(config, seed, number)
    with closing(env):
        device = next(agent.policy.parameters()).device
        generator = torch.Generator(device).manual_seed(environment_seed(seed, number) >> 1)
        collector = Collector(config, env, agent.policy, device, generator)
        collector.start()
        events, score = Events(env.spec, cell, env.buffers.arrays), 0.0
        for step in range(1, LONGEST + 1):
            rollout = collector.collect()
            reward, done = float(env.buffers["reward"][0]), bool(rollout.done_TN[0, 0])
            score += reward
            bonus = float("nan") if done else float(agent.bonus.score(rollout.transitions)[0, 0])
            room, lives = int(env.buffers["room"][0]), int(env.buffers["lives"][0])
            picture = screen(cell, env.buffers["obs"][0]) if screens and not done else None
            yield Moment(step, bonus, reward, score, room, lives, events.after(reward, done), picture)
            if done:
                return


def episode(agent: Agent, seed: int, number: int) -> Episode:
    """The bonus and the events of an episode; pictures are made by playing it again."""
    played = Episode(number)
    for moment in play(agent, seed, number, screens=False):
        played.score = moment.score
        if np.isfinite(moment.bonus):
            played.moments.append(moment)
    return played


def _single(config: Config) -> Config:
    """The run's config for one environment, one step at a time, on ale-py (the native core shows no colours)."""
    env = replace(config.env, num_envs=1, workers=0, backend="ale")
    return replace(config, env=env, rollout_steps=1, minibatches=1, overlap=False, fast=False, device="cpu")


def environment(config: Config, seed: int, number: int) -> tuple[VectorEnv, Any]:
    """One environment able to show itself, and its cell; `number` chooses the episode of a seed."""
    env_id, own_seed = config.env.id, environment_seed(seed, number)
    if env_id.startswith("rnd/"):  # the run's own seed is part of these problems
        return envs.make(config), None
    if ":" in env_id:
        env = envs.make(replace(config, seed=own_seed >> 33))
        return env, env.envs[0] if isinstance(env, LocalEnvs) else None
    if env_id.startswith("ALE/"):
        cell = make_env(replace(config, seed=seed), number)
    else:
        factory = partial(gym_factory(env_id), **_picture_of(env_id))
        cell = GymEnv(factory, env_id, own_seed)
    return LocalEnvs(lambda _: cell, 1), cell


def _picture_of(env_id: str) -> dict[str, str]:
    """What asks an environment for its picture, where it has one; some need a package for it, as CartPole pygame."""
    import gymnasium

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pictures are wanted, no window
    mode = {"render_mode": "rgb_array"}
    try:
        with closing(gym_factory(env_id)(**mode)) as env:
            env.reset(seed=0)
            return mode if isinstance(env.render(), np.ndarray) else {}
    except (UserError, gymnasium.error.Error, ImportError, TypeError, ValueError):
        return {}


def screen(cell: Any, obs: np.ndarray) -> np.ndarray:
    """What a person would see, RGB: the game's screen, the environment's own picture, or what the network reads."""
    if hasattr(cell, "ale"):
        return np.asarray(cell.ale.getScreenRGB())
    if getattr(getattr(cell, "env", None), "render_mode", None) == "rgb_array":
        return np.asarray(cell.env.render(), np.uint8)
    return np.repeat(as_picture(obs)[..., None], 3, axis=2)


def as_picture(obs: np.ndarray) -> np.ndarray:
    """An observation as a grey picture: images as they are, vectors as a square of cells, 0 to 1 as black to white."""
    if obs.ndim == 2:
        return obs
    side = math.isqrt(len(obs) - 1) + 1
    cells = np.zeros(side * side, np.uint8)
    cells[: len(obs)] = np.clip(obs * 255, 0, 255).astype(np.uint8)
    return cells.reshape(side, side)
