"""DeepSea: the smallest problem that needs deep exploration (Osband et al. 2019, "Behaviour Suite").

A square of cells. The agent starts in the top left corner, sinks one row per step and chooses left or right; which of
the two actions means "right" differs between cells, and is fixed over the run. Going right costs 0.01 / size; the
treasure (+1) lies to the right of the bottom right cell. Only one of the 2^size action sequences finds it, and the
small cost of going right keeps a greedy agent away from it.

Legend: N environments, S size of the square, n = rows that are stepped.
"""

from __future__ import annotations

import numpy as np

from rnd.envs.array_env import ArrayEnv
from rnd.envs.spec import ActionSpec, Arrays, EnvSpec, ObservationSpec

SIZES = range(4, 65)
MOVE_COST = 0.01
TREASURE = 1.0


class DeepSea(ArrayEnv):
    """N copies of one DeepSea. The observation is the agent's cell one-hot, S * S components."""

    def __init__(self, size: int, num_envs: int, mapping_seed: int = 0):
        self.size = size
        self.right_SS = np.random.default_rng([size, mapping_seed]).integers(0, 2, (size, size))
        """The action that means "right" in each cell."""
        self.state = {"row": np.zeros(num_envs, np.int64), "column": np.zeros(num_envs, np.int64)}
        self.spec = EnvSpec(
            id=f"rnd/DeepSea-{size}",
            observation=ObservationSpec("vector", (size * size,)),
            action=ActionSpec("discrete", (2,)),
            success_return=TREASURE / 2,
            backend="numpy",
        )

    def reset(self, out: Arrays) -> None:
        self.state["row"][:] = 0
        self.state["column"][:] = 0
        self._write_observation(out["obs"], self.state["row"], self.state["column"])

    def step(self, out: Arrays, rows: slice) -> None:
        row, column = self.state["row"][rows], self.state["column"][rows]  # views: writing them moves the agents
        right = out["action"][rows] == self.right_SS[row, column]
        found = right & (row == self.size - 1) & (column == self.size - 1)
        out["reward"][rows] = TREASURE * found - MOVE_COST / self.size * right
        column += np.where(right, 1, -1)
        np.clip(column, 0, self.size - 1, out=column)
        row += 1
        done = row == self.size
        out["terminated"][rows] = done
        out["truncated"][rows] = False
        if "final_obs" in out:
            out["final_obs"][rows] = 0  # there is no cell below the last row
        row[done] = 0
        column[done] = 0
        self._write_observation(out["obs"][rows], row, column)

    def _write_observation(self, obs: np.ndarray, row: np.ndarray, column: np.ndarray) -> None:
        obs[...] = 0
        obs[np.arange(len(obs)), row * self.size + column] = 1
