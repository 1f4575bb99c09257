"""A key, a door and a goal in a grid of 10x10: a task that tests and benchmarks train on.

    rnd train tasks:key_vector

The factories below differ in what is seen, and in one rule:

- `key_choices`, `key_vector`, `key_image`: everything is seen, as one-hot choices, as a dictionary of vectors, or as an
  image. The key is taken by stepping on it, and a locked door is a wall.
- `hook_both`, `hook_image`: the key hangs on a hook near the start. A step on the hook takes the key, or hangs it back;
  half of the episodes start with the key in the hand; and a step against the locked door ends the episode with reward
  -1. The image does not show the key. With it alone, an agent of any memory is right at the door in one half of its
  attempts: its mean return is at most 0. The vector of `hook_both` tells whether the key is held.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

SIDE, WALL = 10, 5
"""Cells of a side, and the column of the wall between the two rooms."""
START, KEY, DOOR, GOAL = (0, 0), (0, 9), (WALL, 0), (9, 9)
"""Cells as (x, y). The shortest way is 9 steps to the key, 14 to the door, and 13 to the goal."""
HOOK = (2, 3)
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))
STEPS = 150
"""An episode ends after them. Of 7,000 episodes of random actions one reaches the goal (without the hook)."""
PIXELS = 6
"""Sides of a cell in the image."""
Seen = Literal["choices", "vector", "image", "image+vector"]


class KeyDoor(gymnasium.Env[Any, Any]):
    """Reward 1 at the goal, which ends the episode, and 0 elsewhere; with the hook -1 at the locked door."""

    sparse = True
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, seen: Seen = "vector", hook: bool = False):
        self.seen, self.hook, self.render_mode = seen, hook, "rgb_array"
        self.key = HOOK if hook else KEY
        image = spaces.Box(0, 255, (SIDE * PIXELS, SIDE * PIXELS, 3), np.uint8)
        held = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.observation_space: spaces.Space[Any] = {
            "choices": spaces.MultiDiscrete([SIDE, SIDE, 2]),
            "vector": spaces.Dict(agent=spaces.Box(0.0, SIDE - 1.0, (2,), np.float32), held=held),
            "image": image,
            "image+vector": spaces.Dict(image=image, held=held),
        }[seen]
        self.action_space = spaces.Discrete(len(MOVES))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.agent = START
        self.held = bool(self.hook and self.np_random.integers(2))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        x, y = (a + b for a, b in zip(self.agent, MOVES[int(action)], strict=True))
        if (x, y) == DOOR and not self.held:
            return self._observation(), -float(self.hook), self.hook, False, {}
        if 0 <= x < SIDE and 0 <= y < SIDE and (x != WALL or (x, y) == DOOR):
            self.agent = (x, y)
            if self.agent == self.key:
                self.held = not (self.held and self.hook)
        reached = self.agent == GOAL
        return self._observation(), float(reached), reached, False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        """The image with everything in it."""
        return self._image(key=True)

    def _observation(self) -> Any:
        held, agent = np.array([self.held], np.float32), np.array(self.agent)
        if self.seen == "choices":
            return np.array([*self.agent, self.held], np.int64)
        if self.seen == "vector":
            return {"agent": agent.astype(np.float32), "held": held}
        image = self._image(key=not self.hook)
        return image if self.seen == "image" else {"image": image, "held": held}

    def _image(self, key: bool) -> np.ndarray:
        """`key`: it is on its cell until it is held, and then on the agent."""
        cells = np.zeros((SIDE, SIDE, 3), np.uint8)
        cells[:, WALL] = (90, 90, 90)
        for (x, y), colour in ((DOOR, (150, 75, 0)), (GOAL, (0, 255, 0)), (self.agent, (255, 255, 255))):
            cells[y, x] = colour
        image = cells.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)
        if key:
            x, y = (PIXELS * a for a in (self.agent if self.held else self.key))
            image[y + 1 : y + PIXELS - 1, x + 1 : x + PIXELS - 1] = (200, 150, 0)
        return image


def key_choices() -> gymnasium.Env[Any, Any]:
    return TimeLimit(KeyDoor("choices"), STEPS)


def key_vector() -> gymnasium.Env[Any, Any]:
    return TimeLimit(KeyDoor("vector"), STEPS)


def key_image() -> gymnasium.Env[Any, Any]:
    return TimeLimit(KeyDoor("image"), STEPS)


def hook_both() -> gymnasium.Env[Any, Any]:
    return TimeLimit(KeyDoor("image+vector", hook=True), STEPS)


def hook_image() -> gymnasium.Env[Any, Any]:
    return TimeLimit(KeyDoor("image", hook=True), STEPS)
