"""Crafter (pip install crafter), which has an interface of its own, as Gymnasium environments.

rnd train examples.crafter_env:make                    # the image, as in Crafter's benchmark
rnd train examples.crafter_env:make_with_inventory     # and the inventory as a vector
"""

import crafter
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

ITEMS = 16
"""Health, food, drink, energy, materials and tools, 0 to 9 each."""


class Crafter(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  Gymnasium's attribute
    action_space = Discrete(17)

    def __init__(self, inventory=False, area=(64, 64)):
        self.inventory, self.area, self.render_mode = inventory, area, "rgb_array"
        image = Box(0, 255, (64, 64, 3), np.uint8)
        self.observation_space = Dict(image=image, inventory=Box(0, 9, (ITEMS,))) if inventory else image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.env = crafter.Env(self.area, seed=int(self.np_random.integers(2**31)))  # all randomness from this seed
        image = self.env.reset()
        return self.observation(image), {}

    def step(self, action):
        image, reward, done, info = self.env.step(action)
        died = info["discount"] == 0
        return self.observation(image), reward, died, done and not died, {"achievements": info["achievements"]}

    def observation(self, image):
        if not self.inventory:
            return image
        items = self.env._player.inventory  # `info` has it too, but not at the first observation
        return {"image": image, "inventory": np.array([*items.values()], np.float32)}

    def render(self):
        return self.env.render((256, 256))


def make():
    return Crafter()


def make_with_inventory():
    return Crafter(inventory=True)
