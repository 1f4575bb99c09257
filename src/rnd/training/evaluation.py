"""The score of a trained agent: many episodes, played at the same time on the environments of training.

Episode n of a seed is the first episode of environment n, with noise of its own. So every episode counts once, short
ones no more often than long ones, and it is the same however many others are played beside it; but for environments on
the device, whose copies have one seed together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rnd import envs
from rnd.checkpoint.export import SavedAgent
from rnd.config import Config
from rnd.device.graphs import channels_last
from rnd.envs.interface import Episode
from rnd.envs.spec import EnvSpec
from rnd.envs.splitmix import environment_seed
from rnd.foundation.statistics import difference_interval, interquartile_mean, mean_interval, probability_of_improvement
from rnd.models import actions as act
from rnd.models.acting import Actor
from rnd.training.random_agent import random_actions

AT_ONCE = 128
"""Most environments that play at the same time."""
MAX_STEPS = 100_000
"""Steps after which an endless episode is cut."""


@dataclass(frozen=True)
class Evaluation:
    """Episodes of an agent, in the order of their numbers."""

    env_id: str
    frames: int
    """Environment frames that the agent was trained for."""
    seed: int
    greedy: bool
    returns: list[float]
    """Unclipped."""
    lengths: list[int]
    """In steps of the agent."""
    rooms: list[list[int]]
    """Rooms or cells entered in each episode, where the game has them."""
    actions: np.ndarray
    """[steps, ...] of the best episode, in the smallest type that holds them."""
    success_return: float | None = None
    """An episode with a higher return is a success."""
    has_cells: bool = False
    """`rooms` are cells of a grid. Layouts change from episode to episode: only those of one episode are counted."""

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def best_episode(self) -> int:
        """Number of the episode with the highest return."""
        return int(np.argmax(self.returns))

    def summary(self) -> dict[str, Any]:
        """Statistics over the episodes."""
        # as in training, a room of a later level is the same room
        returns = np.array(self.returns)
        rooms = [{place if self.has_cells else place % 256 for place in entered} for entered in self.rooms]
        found: dict[str, Any] = {
            "episodes": len(returns),
            "mean_return": self.mean_return,
            "mean_return_interval_95": list(mean_interval(returns)),
            "std_return": float(returns.std()),
            "median_return": float(np.median(returns)),
            "interquartile_mean_return": float(interquartile_mean(returns)),
            "best_return": float(returns.max()),
            "mean_length": float(np.mean(self.lengths)),
        }
        if self.success_return is not None:
            found["success"] = float((returns > self.success_return).mean())
        if any(rooms):
            found |= {} if self.has_cells else {"rooms": len(set().union(*rooms))}
            each = float(np.mean([len(entered) for entered in rooms]))
            found["cells_per_episode" if self.has_cells else "rooms_per_episode"] = each
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: the statistics, and every episode."""
        head = {name: getattr(self, name) for name in ("env_id", "frames", "seed", "greedy")}
        return head | self.summary() | {"returns": self.returns, "lengths": self.lengths}


def difference(first: Evaluation, second: Evaluation) -> dict[str, Any]:
    """How the first agent compares with the second one."""
    a, b = np.array(first.returns), np.array(second.returns)
    return {
        "mean_difference": float(a.mean() - b.mean()),
        "mean_difference_interval_95": list(difference_interval(a, b)),
        "probability_of_improvement": probability_of_improvement([(a, b)]),
    }


def evaluate(
    agent: SavedAgent,
    episodes: int = 100,
    seed: int = 0,
    greedy: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Play episodes 0 to `episodes` - 1 of a seed; `greedy` takes the most probable action instead of a sample.

    `progress` is called with the number of finished episodes."""
    played: list[Episode] = []
    spec, best, actions = None, -math.inf, np.empty(0)
    for first in range(0, episodes, AT_ONCE):
        config = evaluation_config(agent.config, seed, first, min(AT_ONCE, episodes - first))
        some, actions_TN, spec = play_at_once(agent, config, seed, greedy, progress)
        played += some
        top = int(np.argmax([one.episode_return for one in some]))
        if some[top].episode_return > best:
            best, actions = some[top].episode_return, np.stack([row[top] for row in actions_TN[: some[top].length]])
    return Evaluation(
        agent.config.env.id,
        int(agent.card["frames"]),
        seed,
        greedy,
        [one.episode_return for one in played],
        [one.length for one in played],
        [sorted(one.rooms) for one in played],
        actions,
        spec.success_return if spec else None,
        bool(spec and spec.has_cells),
    )


def evaluation_config(config: Config, seed: int, first: int, count: int) -> Config:
    """The agent's config for environments `first` to `first + count - 1` of another seed."""
    if not config.env.id.startswith("rnd/"):  # the run's own seed is part of these problems
        config = replace(config, seed=seed)
    return replace(config, env=replace(config.env, num_envs=count, first=first), minibatches=1)


def play_at_once(
    agent: SavedAgent, config: Config, seed: int, greedy: bool, progress: Callable[[int], None]
) -> tuple[list[Episode], list[np.ndarray], EnvSpec]:
    """The first episode of every environment of `config`, the actions of every step, and what the environment is.
    Environments that have played theirs step on, without the policy."""
    count, cpu, found = config.env.num_envs, torch.device("cpu"), dict[int, Episode]()
    taken: list[np.ndarray] = []
    generators = [
        torch.Generator().manual_seed(environment_seed(seed, config.env.first + i) >> 1) for i in range(count)
    ]
    with closing(envs.make(config)) as env:
        actor = Actor(channels_last(agent.policy), env.spec, count)
        obs, first = env.reset(), torch.ones(count, dtype=torch.bool)
        actions = torch.as_tensor(random_actions(env, np.random.default_rng(seed)))
        for _ in range(MAX_STEPS):
            rows = [i for i in range(count) if i not in found]
            noise = torch.cat([act.draw_noise(env.spec.action, (1,), generators[i], cpu) for i in rows])
            actions[rows] = actor.act(obs, first, noise * (not greedy), rows).cpu()
            taken.append(actions.numpy().astype(env.spec.action.smallest))
            step = env.step(actions)
            for episode in step.info.episodes:
                found.setdefault(episode.env, episode)
            if step.info.episodes:
                progress(config.env.first + len(found))
            if len(found) == count:
                break
            obs, first = step.obs, torch.zeros_like(first)
        else:
            state = env.state_dict()
            endless = [i for i in range(count) if i not in found]
            found |= {i: Episode(i, float(state["returns"][i]), MAX_STEPS, frozenset()) for i in endless}
        return [found[i] for i in range(count)], taken, env.spec
