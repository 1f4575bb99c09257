"""NoisyTV: four rooms with a television in the first, which some bonuses make the agent watch forever.

The agent walks (up, down, left, right) and has a fifth action, the remote control. In front of the television it sees
the image of the channel, and the remote control switches to a random one of CHANNELS. Elsewhere the fifth action
does nothing and the screen is dark. A bonus that is the error of predicting the NEXT observation from the action never
gets small here; one that measures how well an observation is known (RND) has soon seen every channel. The only reward,
+1, is in the room farthest from the start, and ends the episode.

`room` is where the agent is: 1 in front of the television, 0 elsewhere in the first room, 2, 3, 4 the other rooms.
"""

from __future__ import annotations

import numpy as np

from rnd.envs.splitmix import environment_seed, next_of_each
from rnd.envs.walled_grid import WalledGrid

MAP = """
#############
#TT...#.....#
#TT...#.....#
#.S...D.....#
#.....#.....#
#.....#.....#
#D######D####
#.....#.....#
#.....#.....#
#.....D.....#
#.....#.....#
#.....#....G#
#############
"""
"""# wall, T in front of the television, S start, G goal, D doors between the rooms."""

CHANNELS = 32
PIXELS = 24
MAX_STEPS = 200
REMOTE = 4
"""The action that changes the channel."""
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1], [0, 0]])


class NoisyTV(WalledGrid):
    """N agents in N copies of the rooms. The observation is the agent's cell one-hot, then the screen, PIXELS bits."""

    def __init__(self, num_envs: int, seed: int = 0, first: int = 0):
        grid = np.array([list(line) for line in MAP.split()])
        self.tv = grid == "T"
        row, column = np.indices(grid.shape)
        quarter = 2 * (row >= grid.shape[0] // 2) + (column >= grid.shape[1] // 2)
        self.rooms = np.where(self.tv, 1, np.array([0, 2, 3, 4])[quarter]).astype(np.int32)
        """The number of every cell's room. A door belongs to the room behind it."""
        (start,), (goal,) = np.argwhere(grid == "S").tolist(), np.argwhere(grid == "G").tolist()
        self.images = np.random.default_rng(CHANNELS).integers(0, 2, (CHANNELS, PIXELS)).astype(np.float32)
        size = grid.size + PIXELS
        super().__init__("rnd/NoisyTV", num_envs, grid == "#", MOVES, start, goal, MAX_STEPS, size)
        self.state |= {
            "channel": np.zeros(num_envs, np.int64),
            "random": np.array([environment_seed(seed, first + i) for i in range(num_envs)], np.uint64),
        }

    def after_move(self, action: np.ndarray, rows: slice) -> None:
        position = self.state["position"][rows]
        draws = next_of_each(self.state["random"][rows])  # one per step, used or not: simple and cheap
        switched = (action == REMOTE) & self.tv[position[:, 0], position[:, 1]]
        self.state["channel"][rows][switched] = (draws[switched] % np.uint64(CHANNELS)).astype(np.int64)

    def start_episodes(self, which: np.ndarray) -> None:
        super().start_episodes(which)
        self.state["channel"][which] = 0

    def write_observation(self, obs: np.ndarray, rows: slice) -> None:
        position, cells = self.state["position"][rows], self.wall.size
        obs[...] = 0
        obs[np.arange(len(obs)), position[:, 0] * self.wall.shape[1] + position[:, 1]] = 1
        watching = self.tv[position[:, 0], position[:, 1]]
        obs[watching, cells:] = self.images[self.state["channel"][rows][watching]]

    def room_of(self, position: np.ndarray) -> np.ndarray:
        room: np.ndarray = self.rooms[position[:, 0], position[:, 1]]
        return room
