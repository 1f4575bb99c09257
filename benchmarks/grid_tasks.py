"""Grids with one reward, far away: four rooms with a noisy TV, and a key and a door that move.

Written for small_tasks.py: tasks on which no setting was tuned. A key and a door that do not move: tests/tasks.py.

    rnd train grid_tasks:moving_key
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rnd.envs.four_rooms import GOAL, MAX_STEPS, SIDE, START, walls

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
Cell = tuple[int, int]


class Grid(gymnasium.Env[Any, int]):
    """A square of cells with walls. The actions are up, right, down, left; the goal is the only reward, and the end."""

    size: int
    limit: int
    """Steps of an episode."""
    sparse = True
    """For small_tasks.py: any reward is a success."""

    def __init__(self) -> None:
        self.walls: set[Cell] = set()
        self.agent, self.goal = (1, 1), (1, 1)
        self.steps = 0
        self.action_space = spaces.Discrete(4)

    def build(self) -> None:
        """A new episode: walls, agent and goal."""
        raise NotImplementedError

    def observe(self) -> Any:
        raise NotImplementedError

    def act(self, action: int) -> None:
        row, column = (a + b for a, b in zip(self.agent, MOVES[action], strict=True))
        if (row, column) not in self.walls:
            self.agent = (row, column)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.build()
        return self.observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.act(int(action))
        reached = self.agent == self.goal
        return self.observe(), float(reached), reached, self.steps >= self.limit, {}

    def border(self) -> set[Cell]:
        ends, n = (0, self.size - 1), self.size
        return {(r, c) for r in range(n) for c in range(n) if r in ends or c in ends}


class FourRoomsNoisyTV(Grid):
    """The rooms of `rnd/FourRooms`, the agent's row and column one-hot, and a screen that a fifth action switches to a
    random one of 32 channels."""

    size, limit = SIDE, MAX_STEPS

    def __init__(self) -> None:
        super().__init__()
        self.channel = 0
        self.action_space = spaces.Discrete(5)
        self.observation_space = spaces.MultiDiscrete([self.size, self.size, 32])

    def build(self) -> None:
        self.walls = {tuple(cell) for cell in np.argwhere(walls()).tolist()}
        self.agent, self.goal = START, GOAL

    def act(self, action: int) -> None:
        if action == 4:
            self.channel = int(self.np_random.integers(32))
        else:
            super().act(action)

    def observe(self) -> Any:
        return np.array([*self.agent, self.channel])


class MovingKey(Grid):
    """Two rooms of 10x10 in all, others in every episode: take the key (action 4), open the door (5), reach the goal.
    The door is opened from beside it."""

    size, limit = 10, 100
    places = ("agent", "key", "door", "goal")

    def __init__(self) -> None:
        super().__init__()
        self.key, self.door = (1, 1), (1, 1)
        self.has_key = self.is_open = False
        self.action_space = spaces.Discrete(6)
        entries: dict[str, spaces.Space[Any]] = {name: spaces.Box(0, 1, (2,), np.float32) for name in self.places}
        entries |= {"has_key": spaces.Discrete(2), "is_open": spaces.Discrete(2)}
        self.observation_space = spaces.Dict(entries)

    def build(self) -> None:
        draw = self.np_random.integers
        wall = int(draw(4, 7))
        left = [(r, c) for r in range(1, 9) for c in range(1, wall)]
        right = [(r, c) for r in range(1, 9) for c in range(wall + 1, 9)]
        self.agent, self.key = (left[draw(len(left))] for _ in range(2))
        self.door, self.goal = (int(draw(1, 9)), wall), right[draw(len(right))]
        self.walls = self.border() | {(row, wall) for row in range(10)}
        self.has_key = self.is_open = False

    def act(self, action: int) -> None:
        beside = sum(abs(a - b) for a, b in zip(self.agent, self.door, strict=True)) == 1
        if action < 4:
            super().act(action)
        elif action == 4:
            self.has_key |= self.agent == self.key
        elif self.has_key and beside:
            self.is_open = True
            self.walls -= {self.door}

    def observe(self) -> Any:
        places = {name: np.array(getattr(self, name), np.float32) / 9 for name in self.places}
        return places | {"has_key": int(self.has_key), "is_open": int(self.is_open)}


def four_rooms_noisy_tv() -> Grid:
    """Choices, the same in every episode."""
    return FourRoomsNoisyTV()


def moving_key() -> Grid:
    """A dictionary of numbers and choices, another grid in every episode."""
    return MovingKey()
