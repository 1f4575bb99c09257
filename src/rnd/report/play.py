"""One episode of a trained agent, step by step, exactly repeatable from a seed.

The collector of training plays it with one environment and rollouts of one step, so that frame stacking, the recurrent
state and sampling are the same code. The bonus normalizes its observations as in training, and remembers the episode
where it does so there.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from rnd import envs
from rnd.bonus.base import BonusModule
from rnd.checkpoint.export import SavedAgent
from rnd.config import Config
from rnd.data.transitions import Transitions
from rnd.envs.factories import gym_factory, make_env, reads
from rnd.envs.gym_env import GymEnv
from rnd.envs.interface import VectorEnv
from rnd.envs.local import LocalEnvs
from rnd.envs.spec import SCREEN
from rnd.envs.splitmix import environment_seed
from rnd.foundation.console import warn
from rnd.foundation.errors import UserError
from rnd.plugins.episodes import EpisodeFeatures, EpisodeMemory, episodes_of
from rnd.report.events import Events
from rnd.training.collector import SynchronousCollector
from rnd.training.evaluation import MAX_STEPS, evaluation_config


@dataclass(frozen=True)
class PlayedStep:
    """One step: the bonus of the next observation, and the events."""

    step: int
    bonus: float | None
    """None at an episode's end where the environment does not give its last observation (Atari, DeepSea), and for an
    agent whose bonus was left out of its file."""
    reward: float
    score: float
    """The return so far, unclipped."""
    room: int
    lives: int
    events: tuple[str, ...]
    screen: np.ndarray | None
    """RGB; None where no screens are wanted."""


@dataclass
class PlayedEpisode:
    """An episode without its screens."""

    number: int
    """With it and the seed, the episode can be played again."""
    steps: list[PlayedStep] = field(default_factory=list)
    score: float = 0.0

    @property
    def bonus(self) -> np.ndarray:
        """The bonus of every step; NaN where it is not known."""
        return np.array([step.bonus for step in self.steps], float)


def play(agent: SavedAgent, seed: int, number: int, *, screens: bool, greedy: bool = False) -> Iterator[PlayedStep]:
    """Yield the steps of episode `number` of a seed, the last one included; `greedy` takes the most probable actions.

    The environment resets itself within the last step: what belongs to that step is taken from before the reset."""
    config = _single(agent.config)
    env, single_env = environment(config, seed, number)
    with closing(env):
        device = next(agent.policy.parameters()).device
        generator = torch.Generator(device).manual_seed(environment_seed(seed, number) >> 1)
        collector = SynchronousCollector(config, env, agent.policy, device, generator)
        collector.start()
        scorer = EpisodeScorer(agent.bonus, device) if agent.bonus else None

        def silence(t: int) -> None:
            """Without noise a sample is the most probable action."""
            collector.buffer.noise.zero_()

        camera = Camera(single_env, env) if screens else None
        events, score, lives = Events(env.spec, single_env, env.buffers.arrays), 0.0, 0
        for step in range(1, MAX_STEPS + 1):
            rollout = collector.collect(before_step=silence if greedy else None)
            reward, done = float(env.buffers["reward"][0]), bool(rollout.done_TN[0, 0])
            if done and rollout.episodes[0].length < step:
                return  # a vector environment that takes one more step to reset itself
            score += reward
            room = int(env.buffers["final_room" if done else "room"][0])
            if not done:
                lives = int(env.buffers["lives"][0])
            elif env.buffers["terminated"][0]:
                lives = 0
            bonus = scorer(rollout.transitions, env if done else None) if scorer else None
            image = camera.image(done) if camera else None
            yield PlayedStep(step, bonus, reward, score, room, lives, events.after(reward, done), image)
            if done:
                return


class EpisodeScorer:
    """The bonus of the steps of one episode, one after the other."""

    def __init__(self, bonus: BonusModule, device: torch.device):
        self.bonus, self.episodes = bonus, episodes_of(bonus, 1, device)

    def __call__(self, transitions: Transitions, ended: VectorEnv | None) -> float | None:
        """The bonus of a step. Where the episode has `ended` its next observation is `final_obs`, if there is one."""
        if ended is not None:
            if "final_obs" not in ended.buffers.arrays:
                return None
            frames = transitions.frames.clone()
            frames[-1] = ended.buffers.tensors["final_obs"]
            transitions = replace(transitions, frames=frames)
        never = torch.zeros_like(transitions.age[1:], dtype=torch.bool)
        if isinstance(self.episodes, EpisodeFeatures):
            before = replace(transitions, frames=transitions.frames[[*range(transitions.stack), -2]])
            features, start = (self.bonus.embed(each).float() for each in (transitions, before))
            return float(self.episodes(features, start, never, ~never))
        if isinstance(self.episodes, EpisodeMemory):
            obs, next_obs = transitions.newest.split(1)
            new = self.episodes.first_visits(obs, next_obs, never.numpy(), (~never).numpy())
            transitions = replace(transitions, first_visit=torch.from_numpy(new))
        return float(self.bonus.score(transitions))


class Camera:
    """Takes the image of every step; that of the last one before the environment resets itself."""

    def __init__(self, single_env: Any, env: VectorEnv):
        self.single_env, self.env = single_env, env
        self._last = self._take("obs")
        if single_env is not None:
            self._reset, single_env.reset = single_env.reset, self._before_reset

    def image(self, done: bool) -> np.ndarray:
        if not done:
            self._last = self._take("obs")
        elif self.single_env is None and "final_obs" in self.env.buffers.arrays:
            self._last = self._take("final_obs")
        return self._last

    def _take(self, name: str) -> np.ndarray:
        return screen(self.single_env, self.env.buffers[name][0])

    def _before_reset(self, *arguments: Any) -> None:
        written = "final_obs" in self.env.buffers.arrays
        self._last = self._take("final_obs" if written else "obs")
        self._reset(*arguments)


def episode(agent: SavedAgent, seed: int, number: int, greedy: bool = False) -> PlayedEpisode:
    """Episode `number` of a seed without screens, which would need much memory: for those it is played again."""
    played = PlayedEpisode(number)
    for step in play(agent, seed, number, screens=False, greedy=greedy):
        played.score = step.score
        played.steps.append(step)
    return played


def _single(config: Config) -> Config:
    """The run's config for one environment and rollouts of one step. Without `bootstrap_truncated` a `final_obs`, where
    there is one, is written at every end: Atari would write it at time limits alone."""
    env = replace(config.env, num_envs=1, workers=0)
    config = replace(config, env=env, rollout_steps=1, minibatches=1, device="cpu")
    return replace(config, overlap=False, fast=False, bootstrap_truncated=False)


def environment(config: Config, seed: int, number: int) -> tuple[VectorEnv, Any]:
    """A VectorEnv of one environment, and that environment itself (None for those that come with rnd). Atari is played
    on ale-py: the native core has no colours."""
    env_id = config.env.id
    if env_id.startswith("rnd/") or ":" in env_id:
        env = envs.make(evaluation_config(config, seed, number, 1))
        return env, env.envs[0] if isinstance(env, LocalEnvs) and ":" in env_id else None
    if env_id.startswith("ALE/"):
        single_env = make_env(replace(config, seed=seed), number)
    else:
        factory = partial(gym_factory(env_id), **_image_of(env_id))
        single_env = GymEnv(factory, env_id, environment_seed(seed, number), reads(config))
    return LocalEnvs(lambda _: single_env, 1), single_env


@functools.cache
def _image_of(env_id: str) -> dict[str, str]:
    """The arguments that make an environment render images, if it can; some need a package (CartPole: pygame)."""
    import gymnasium

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # images, but no window
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")  # what MuJoCo would take needs a screen
    mode = {"render_mode": "rgb_array"}
    try:
        with closing(gym_factory(env_id)(**mode)) as env:
            env.reset(seed=0)
            return mode if isinstance(env.render(), np.ndarray) else {}
    except (UserError, gymnasium.error.Error, ImportError, TypeError, ValueError):
        return {}  # it has no images, or lacks a package for them
    except Exception as error:  # whatever its renderer raises
        text = " ".join(f"{type(error).__name__}: {error}".split())
        warn(f"{env_id} cannot be drawn ({text}): what the networks read is shown")
        return {}


def screen(single_env: Any, obs: np.ndarray) -> np.ndarray:
    """An RGB image: the game's screen, the environment's own rendering, or else the observation."""
    if hasattr(single_env, "ale"):
        return np.asarray(single_env.ale.getScreenRGB())
    if getattr(getattr(single_env, "env", None), "render_mode", None) == "rgb_array":
        return np.asarray(single_env.env.render(), np.uint8)
    return np.repeat(as_image(obs)[..., None], 3, axis=2)


def as_image(obs: np.ndarray) -> np.ndarray:
    """An observation as a grey image, the first of several; a vector as a square of pixels, 0 to 1 black to white."""
    if obs.dtype == np.uint8:
        return obs.reshape(-1)[: SCREEN * SCREEN].reshape(SCREEN, SCREEN)
    side = math.isqrt(len(obs) - 1) + 1
    pixels = np.zeros(side * side, np.uint8)
    pixels[: len(obs)] = np.clip(obs * 255, 0, 255).astype(np.uint8)
    return pixels.reshape(side, side)
