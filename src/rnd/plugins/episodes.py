"""What a bonus remembers of running episodes, for transitions that come in from other agents.

Legend: T steps, N environments, X the shape of one observation, k features.

First visits: steps come one by one here, so what was visited is a set on the host: one of a few thousand visits is
found at once. `rnd.bonus.visits` is for whole rollouts on a GPU that the host does not wait for.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rnd.bonus.base import BonusModule, EpisodeBonus
from rnd.bonus.hashing import hash_rollout


def episodes_of(bonus: BonusModule, num_envs: int, device: torch.device) -> EpisodeMemory | EpisodeFeatures | None:
    """What a bonus remembers of running episodes, if it does."""
    if (features := bonus.episode_bonus(num_envs)) is not None:
        return EpisodeFeatures(features, num_envs, device)
    return EpisodeMemory(num_envs, bonus.episode_memory) if bonus.episode_memory else None


class EpisodeMemory:
    """Where each environment has been since its episode began."""

    def __init__(self, num_envs: int, memory: int):
        self.memory = memory
        """Visits of an environment that are remembered; the oldest are forgotten."""
        self.visited: list[dict[int, None]] = [{} for _ in range(num_envs)]
        self.begins_N = np.ones(num_envs, bool)
        """The next step is the first of an episode."""

    def first_visits(self, obs: Tensor, next_obs: Tensor, done_TN: np.ndarray, valid_TN: np.ndarray) -> np.ndarray:
        """Where s_{t+1} of the transitions [T, N, X] is new in its episode, [T, N]; remembers both observations.

        A step that is no transition (`valid` is False) ends the episode."""
        keys_TN, next_keys_TN = hash_rollout(obs).tolist(), hash_rollout(next_obs).tolist()
        new_TN = np.zeros(done_TN.shape, bool)
        for t, ends_N in enumerate(done_TN | ~valid_TN):
            for n, visited in enumerate(self.visited):
                if self.begins_N[n]:
                    visited.clear()
                    self._visit(visited, keys_TN[t][n])
                new_TN[t, n] = self._visit(visited, next_keys_TN[t][n])
            self.begins_N = ends_N
        return new_TN

    def _visit(self, visited: dict[int, None], key: int) -> bool:
        """Whether it is the first visit."""
        if key in visited:
            return False
        visited[key] = None
        if len(visited) > self.memory:
            del visited[next(iter(visited))]
        return True

    def reset(self, reset_N: np.ndarray | None = None) -> None:
        """These environments, or all, have begun an episode."""
        self.begins_N = self.begins_N | (True if reset_N is None else reset_N)

    def state_dict(self) -> dict[str, Tensor]:
        keys = [torch.tensor(list(visited), dtype=torch.int64) for visited in self.visited]
        counts_N = torch.tensor([len(visited) for visited in self.visited])
        return {"visits": torch.cat(keys), "counts": counts_N, "begins": torch.from_numpy(self.begins_N.copy())}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        parts = state["visits"].split(state["counts"].tolist())
        if not len(parts) == len(state["begins"]) == len(self.visited):
            raise ValueError("the visits are those of another number of environments")
        self.visited = [dict.fromkeys(part.tolist()) for part in parts]
        self.begins_N = state["begins"].cpu().numpy().copy()


class EpisodeFeatures:
    """An `EpisodeBonus` that is told where episodes end. On the device: the host does not wait for it."""

    def __init__(self, bonus: EpisodeBonus, num_envs: int, device: torch.device):
        self.bonus = bonus.to(device)
        self.begins_N = torch.ones(num_envs, dtype=torch.bool, device=device)
        """The next step is the first of an episode."""

    def __call__(self, features_TNk: Tensor, start_TNk: Tensor, done_TN: Tensor, valid_TN: Tensor) -> Tensor:
        """The raw bonus [T, N] of s_{t+1}, from its features and those of s_t, which count where an episode begins.

        A step that is no transition (`valid` is False) ends the episode."""
        begins_TN = torch.cat([self.begins_N[None], done_TN | ~valid_TN])
        self.begins_N = begins_TN[-1]
        raw_TN: Tensor = self.bonus(features_TNk * valid_TN[..., None], begins_TN[:-1], start_TNk)
        return raw_TN

    def reset(self, reset_N: np.ndarray | None = None) -> None:
        """These environments, or all, have begun an episode."""
        reset = torch.ones_like(self.begins_N) if reset_N is None else torch.from_numpy(reset_N)
        self.begins_N = self.begins_N | reset.to(self.begins_N.device)

    def state_dict(self) -> dict[str, Tensor]:
        return {"begins": self.begins_N.clone(), **{name: x.clone() for name, x in self.bonus.state_dict().items()}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        state = dict(state)
        self.begins_N = state.pop("begins").to(self.begins_N.device)
        self.bonus.load_state_dict(state)
