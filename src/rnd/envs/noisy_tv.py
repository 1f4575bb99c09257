"""NoisyTV: four rooms with a television in the first, which some bonuses make the agent watch forever.

The agent walks (up, down, left, right) and has a fifth action, the remote control. In front of the television it sees
the image of the channel, and the remote control switches to a random one of CHANNELS. Elsewhere the fifth action
does nothing and the screen is dark. A bonus that is the error of predicting the NEXT observation from the action never
gets small here; one that measures how well an observation is known (RND) has soon seen every channel. The only reward,
+1, is in the room farthest from the start, and ends the episode.

`room` is where the agent is: 1 in front of the television, 0 elsewhere in the first room, 2, 3, 4 the other rooms.

Legend: N environments, n = rows that are stepped.
"""

from __future__ import annotations

import numpy as np

from rnd.envs.array_env import ArrayEnv
from rnd.envs.spec import ActionSpec, Arrays, EnvSpec, ObservationSpec
from rnd.envs.splitmix import environment_seed, next_of_each

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


class NoisyTV(ArrayEnv):
    """N agents in N copies of the rooms. The observation is the agent's cell one-hot, then the screen, PIXELS bits."""

    def __init__(self, num_envs: int, seed: int = 0, first: int = 0):
        grid = np.array([list(line) for line in MAP.split()])
        self.wall = grid == "#"
        self.tv = grid == "T"
        row, column = np.indices(grid.shape)
        quarter = 2 * (row >= grid.shape[0] // 2) + (column >= grid.shape[1] // 2)
        self.rooms = np.where(self.tv, 1, np.array([0, 2, 3, 4])[quarter]).astype(np.int32)
        """The number of every cell's room. A door belongs to the room behind it."""
        (self.start,), (self.goal,) = np.argwhere(grid == "S"), np.argwhere(grid == "G")
        self.images = np.random.default_rng(CHANNELS).integers(0, 2, (CHANNELS, PIXELS)).astype(np.float32)
        self.state = {
            "position": np.tile(self.start, (num_envs, 1)),
            "channel": np.zeros(num_envs, np.int64),
            "age": np.zeros(num_envs, np.int64),
            "random": np.array([environment_seed(seed, first + i) for i in range(num_envs)], np.uint64),
        }
        self.spec = EnvSpec(
            id="rnd/NoisyTV",
            observation=ObservationSpec("vector", (self.wall.size + PIXELS,)),
            action=ActionSpec("discrete", (len(MOVES),)),
            has_rooms=True,
            success_return=0.0,
            time_limits=True,
            backend="numpy",
        )

    def reset(self, out: Arrays) -> None:
        num_envs = len(self.state["age"])
        self._start_episodes(np.arange(num_envs))
        self._write(out, slice(0, num_envs))

    def step(self, out: Arrays, rows: slice) -> None:
        action, position = out["action"][rows], self.state["position"][rows]
        target = position + MOVES[action]
        free = ~self.wall[target[:, 0], target[:, 1]]
        position[free] = target[free]
        draws = next_of_each(self.state["random"][rows])  # one per step, used or not: simple and cheap
        switched = (action == REMOTE) & self.tv[position[:, 0], position[:, 1]]
        self.state["channel"][rows][switched] = (draws[switched] % np.uint64(CHANNELS)).astype(np.int64)
        self.state["age"][rows] += 1

        found = (position == self.goal).all(axis=1)
        late = (self.state["age"][rows] >= MAX_STEPS) & ~found
        out["reward"][rows] = found
        out["terminated"][rows] = found
        out["truncated"][rows] = late
        self._write(out, rows, "final_")
        self._start_episodes(rows.start + np.flatnonzero(found | late))
        self._write(out, rows)

    def _start_episodes(self, which: np.ndarray) -> None:
        self.state["position"][which] = self.start
        self.state["channel"][which] = 0
        self.state["age"][which] = 0

    def _write(self, out: Arrays, rows: slice, prefix: str = "") -> None:
        obs, position, cells = out[prefix + "obs"][rows], self.state["position"][rows], self.wall.size
        out[prefix + "room"][rows] = self.rooms[position[:, 0], position[:, 1]]
        obs[...] = 0
        obs[np.arange(len(obs)), position[:, 0] * self.wall.shape[1] + position[:, 1]] = 1
        watching = self.tv[position[:, 0], position[:, 1]]
        obs[watching, cells:] = self.images[self.state["channel"][rows][watching]]
