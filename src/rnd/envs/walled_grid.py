"""N agents that walk among walls to the same goal: what FourRooms and NoisyTV have in common.

Legend: N environments, n = rows that are stepped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from rnd.envs.array_env import ArrayEnv
from rnd.envs.spec import ActionSpec, Arrays, EnvSpec, ObservationSpec


class WalledGrid(ArrayEnv):
    """The only reward, +1, is at the goal, and ends the episode; so does the time limit, as a truncation."""

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        wall: np.ndarray,
        moves: np.ndarray,
        start: Sequence[int],
        goal: Sequence[int],
        max_steps: int,
        observation_size: int,
    ):
        """`wall`: which cells are walls. `moves`: rows and columns per action."""
        self.wall, self.moves, self.start, self.goal, self.max_steps = wall, moves, start, goal, max_steps
        self.state = {"position": np.tile(start, (num_envs, 1)), "age": np.zeros(num_envs, np.int64)}
        self.spec = EnvSpec(
            id=env_id,
            observation=ObservationSpec("vector", (observation_size,)),
            action=ActionSpec("discrete", (len(moves),)),
            has_rooms=True,
            success_return=0.0,
            time_limits=True,
            backend="numpy",
        )

    @abstractmethod
    def write_observation(self, obs: np.ndarray, rows: slice) -> None:
        """What the agents of these rows see."""

    @abstractmethod
    def room_of(self, position: np.ndarray) -> np.ndarray:
        """Numbers of the rooms at positions [n, 2]."""

    def reset(self, out: Arrays) -> None:
        num_envs = len(self.state["age"])
        self.start_episodes(np.arange(num_envs))
        self._write(out, slice(0, num_envs))

    def step(self, out: Arrays, rows: slice) -> None:
        position = self.state["position"][rows]  # a view: writing it moves the agents
        target = position + self.moves[out["action"][rows]]
        free = ~self.wall[target[:, 0], target[:, 1]]
        position[free] = target[free]
        self.state["age"][rows] += 1
        self.after_move(out["action"][rows], rows)

        found = (position == self.goal).all(axis=1)
        late = (self.state["age"][rows] >= self.max_steps) & ~found
        out["reward"][rows] = found
        out["terminated"][rows] = found
        out["truncated"][rows] = late
        self._write(out, rows, "final_")
        self.start_episodes(rows.start + np.flatnonzero(found | late))
        self._write(out, rows)

    def after_move(self, action: np.ndarray, rows: slice) -> None:
        """What else an action does."""

    def start_episodes(self, which: np.ndarray) -> None:
        """Put the agents of the environments with these numbers back to the start."""
        self.state["position"][which] = self.start
        self.state["age"][which] = 0

    def _write(self, out: Arrays, rows: slice, prefix: str = "") -> None:
        self.write_observation(out[prefix + "obs"][rows], rows)
        out[prefix + "room"][rows] = self.room_of(self.state["position"][rows])
