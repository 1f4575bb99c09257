"""FourRooms: a goal far away, and an observation of two numbers.

Four rooms of 11x11 cells with doors of one cell between them. The agent starts in one corner; the only reward, +1, is
in the opposite one, 44 moves away, and ends the episode. A random policy found it in none of 10,000 episodes of 200
steps. The observation is the agent's row and column, as shares of the side.

Legend: N environments, n = rows that are stepped.
"""

from __future__ import annotations

import numpy as np

from rnd.envs.array_env import ArrayEnv
from rnd.envs.spec import ActionSpec, Arrays, EnvSpec, ObservationSpec

SIDE, MIDDLE = 25, 12
DOORS = ((12, 4), (12, 19), (5, 12), (20, 12))
START, GOAL = (1, 1), (23, 23)
MAX_STEPS = 200
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
"""Up, right, down, left."""


def walls() -> np.ndarray:
    """Which cells are walls, [SIDE, SIDE]."""
    wall = np.zeros((SIDE, SIDE), bool)
    for line in (0, MIDDLE, SIDE - 1):
        wall[line, :] = wall[:, line] = True
    wall[tuple(zip(*DOORS, strict=True))] = False
    return wall


class FourRooms(ArrayEnv):
    """N agents in N copies of the rooms. `room` is 0 to 3; a door belongs to the room behind it."""

    def __init__(self, num_envs: int):
        self.wall = walls()
        self.state = {"position": np.tile(START, (num_envs, 1)), "age": np.zeros(num_envs, np.int64)}
        self.spec = EnvSpec(
            id="rnd/FourRooms",
            observation=ObservationSpec("vector", (2,)),
            action=ActionSpec("discrete", (len(MOVES),)),
            has_rooms=True,
            success_return=0.0,
            time_limits=True,
            backend="numpy",
        )

    def reset(self, out: Arrays) -> None:
        self._start_episodes(np.arange(len(self.state["age"])))
        self._write(out, slice(0, len(self.state["age"])))

    def step(self, out: Arrays, rows: slice) -> None:
        position = self.state["position"][rows]  # a view: writing it moves the agents
        target = position + MOVES[out["action"][rows]]
        free = ~self.wall[target[:, 0], target[:, 1]]
        position[free] = target[free]
        self.state["age"][rows] += 1

        found = (position == GOAL).all(axis=1)
        late = (self.state["age"][rows] >= MAX_STEPS) & ~found
        out["reward"][rows] = found
        out["terminated"][rows] = found
        out["truncated"][rows] = late
        self._write(out, rows, "final_")
        self._start_episodes(rows.start + np.flatnonzero(found | late))
        self._write(out, rows)

    def _start_episodes(self, which: np.ndarray) -> None:
        self.state["position"][which] = START
        self.state["age"][which] = 0

    def _write(self, out: Arrays, rows: slice, prefix: str = "") -> None:
        position = self.state["position"][rows]
        out[prefix + "obs"][rows] = position / (SIDE - 1)
        out[prefix + "room"][rows] = 2 * (position[:, 0] >= MIDDLE) + (position[:, 1] >= MIDDLE)
