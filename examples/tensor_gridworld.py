"""A gridworld of 4,096 copies on one device: three rooms, one reward far behind two doors; steps may slip.

rnd train examples.tensor_gridworld:make --env.num-envs 4096 --frames 60000000
"""

import torch
from gymnasium.spaces import Box, Discrete

from rnd.envs.tensor_env import TensorEnv, TensorStep

SIZE, LIMIT = 13, 120


class Gridworld(TensorEnv):
    observation_space, action_space = Box(0, 1, (2 * SIZE,)), Discrete(4)
    sparse, places = True, "cells"

    def __init__(self, num_envs, device):
        self.num_envs, self.generator = num_envs, torch.Generator(device)
        self.free = ~torch.zeros(SIZE, SIZE, dtype=torch.bool, device=device)
        self.free[6, :], self.free[:6, 6], self.free[6, 11], self.free[2, 6] = False, False, True, True
        self.moves = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]], device=device)
        self.numbers, self.goal = torch.arange(SIZE, device=device), torch.tensor([SIZE - 1, 0], device=device)
        self.cell = torch.zeros(num_envs, 2, dtype=torch.int64, device=device)  # y, x
        self.time = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def reset(self, seed):
        self.generator.manual_seed(seed)
        self.cell.zero_(), self.time.zero_()
        return self.observation()

    def step(self, actions):
        slips = torch.rand(self.num_envs, 2, generator=self.generator, device=self.cell.device)
        actions = torch.where(slips[:, 0] < 0.1, (slips[:, 1] * 4).long(), actions)
        moved = (self.cell + self.moves[actions]).clamp(0, SIZE - 1)
        self.cell = torch.where(self.free[moved[:, 0], moved[:, 1], None], moved, self.cell)
        self.time = self.time + 1
        final, place, found = self.observation(), self.place(), (self.cell == self.goal).all(1)
        ends = found | (self.time >= LIMIT)
        self.cell, self.time = self.cell * ~ends[:, None], self.time * ~ends  # every episode starts at 0, 0
        return TensorStep(self.observation(), found.float(), found, ends & ~found, final, self.place(), place)

    def observation(self):
        return (self.cell[..., None] == self.numbers).flatten(1).float()  # one-hot; PyTorch's own may wait for a GPU

    def place(self):
        return self.cell[:, 0] * 256 + self.cell[:, 1]

    def state_dict(self):
        return {"cell": self.cell, "time": self.time, "generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.cell, self.time = state["cell"], state["time"]
        self.generator.set_state(state["generator"].cpu())


def make(num_envs=4096, device="cpu"):
    return Gridworld(num_envs, device)
