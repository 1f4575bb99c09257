"""FourRooms: a goal far away, and an observation of two numbers.

Four rooms of 11x11 cells with doors of one cell between them. The agent starts in one corner; the only reward, +1, is
in the opposite one, 44 moves away, and ends the episode. A random policy found it in none of 10,000 episodes of 200
steps. The observation is the agent's row and column, as shares of the side.
"""

from __future__ import annotations

import numpy as np

from rnd.envs.walled_grid import WalledGrid

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


class FourRooms(WalledGrid):
    """N agents in N copies of the rooms. `room` is 0 to 3; a door belongs to the room behind it."""

    def __init__(self, num_envs: int):
        super().__init__("rnd/FourRooms", num_envs, walls(), MOVES, START, GOAL, MAX_STEPS, observation_size=2)

    def write_observation(self, obs: np.ndarray, rows: slice) -> None:
        obs[...] = self.state["position"][rows] / (SIDE - 1)

    def room_of(self, position: np.ndarray) -> np.ndarray:
        room: np.ndarray = 2 * (position[:, 0] >= MIDDLE) + (position[:, 1] >= MIDDLE)
        return room
