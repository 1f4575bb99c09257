"""First visits within an episode: which observations an environment has not shown since its episode began.

Legend: T steps, N environments, X the shape of one observation, L remembered steps.

A visit is one 64-bit key, the hash of the observation (to the bit) and of the episode's number. So nothing is deleted
at an episode's end. All shapes are fixed, and the host does not wait for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rnd.bonus.hashing import hash_rollout, mix, weyl

AXES = {"visits": 1, "episode": 0}
"""The axis of the environments in each entry of the state."""


class EpisodeVisits:
    """The visits of the last L steps of every environment."""

    def __init__(self, num_envs: int, memory: int, device: torch.device):
        self.keys = torch.zeros(memory, num_envs, dtype=torch.int64, device=device)
        self.episode = torch.zeros(num_envs, dtype=torch.int64, device=device)

    @torch.no_grad()
    def update(self, obs: Tensor, first_TN: Tensor) -> Tensor:
        """Returns a mask [T, N] of the observations 1 ... T that are first visits, and remembers them. `obs` [T + 1, N,
        X] begins with the last observation before them. `first` marks observations that begin an episode."""
        steps = len(first_TN)
        episode = torch.cat([self.episode[None], self.episode + first_TN.cumsum(0)])
        # the last key of before is that of the first observation now
        keys = torch.cat([self.keys[:-1], mix(hash_rollout(obs) + weyl(episode + 1))])
        ordered, order = keys.sort(dim=0, stable=True)  # equal keys stay in the order of time
        again = torch.zeros_like(keys, dtype=torch.bool)
        again.scatter_(0, order[1:], ordered[1:] == ordered[:-1])
        self.keys.copy_(keys[-len(self.keys) :])
        self.episode.copy_(episode[-1])
        return ~again[-steps:]

    def state_dict(self) -> dict[str, Tensor]:
        return {"visits": self.keys.clone(), "episode": self.episode.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.keys.copy_(state["visits"])
        self.episode.copy_(state["episode"])
