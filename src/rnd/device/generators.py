"""The random generators of a run, ours and the global ones that libraries may use: their seeds, and their state as
plain data."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rnd.config import Config
from rnd.envs.splitmix import environment_seed


class Generators:
    """What one rank of a run draws from: generators on the device, and numpy's for the random agent.

    Acting and learning may overlap, so each has its own.
    """

    def __init__(self, seed: int, rank: int, device: torch.device):
        self.run_seed, self.rank = seed, rank
        self.acting, self.learning = Generator(device), Generator(device)
        self.random_agent = np.random.default_rng()
        self.seed()

    def seed(self, iteration: int = 0) -> None:
        """Seeds of this rank. They differ with the iteration, for runs that continue with another number of ranks."""
        for k, generator in enumerate(self._on_the_device().values()):
            generator.manual_seed(draw_seed(self.run_seed, k, self.rank, iteration))
        spawn_key = (self.rank,) if self.rank else ()
        self.random_agent = np.random.default_rng(np.random.SeedSequence(self.run_seed, spawn_key=spawn_key))

    def _on_the_device(self) -> dict[str, Generator]:
        return {"acting": self.acting, "learning": self.learning}

    def state_dict(self) -> dict[str, Any]:
        """The state of these and of the global generators. numpy's global one is an array and four plain values."""
        name, key, position, has_gauss, gauss = np.random.get_state(legacy=True)
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        own = self._on_the_device().items()
        return {
            "ours": {name: {"device": g.device.type, "state": g.get_state()} for name, g in own},
            "random_agent": self.random_agent.bit_generator.state,
            "python": random.getstate(),
            "numpy": {"name": name, "key": np.asarray(key), "rest": [position, has_gauss, gauss]},
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if cuda else [],
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Restore what `state_dict` returned. Returns False on another kind of device, where the draws differ: the
        states of different kinds of generators are not interchangeable."""
        self.random_agent.bit_generator.state = state["random_agent"]
        version, words, gauss = state["python"]
        random.setstate((version, tuple(words), gauss))
        numpy_state = state["numpy"]
        np.random.set_state((numpy_state["name"], numpy_state["key"], *numpy_state["rest"]))
        torch.set_rng_state(state["torch"])
        devices: list[Tensor] = state["cuda"]
        if torch.cuda.is_available() and len(devices) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(devices)
        own = self._on_the_device().items()
        same = all(state["ours"][name]["device"] == generator.device.type for name, generator in own)
        if same:
            for name, generator in own:
                generator.set_state(state["ours"][name]["state"])
        return same


def seed_everything(config: Config) -> None:
    """Seed the global generators, and set the number of threads, on which the order of sums depends."""
    random.seed(config.seed)
    np.random.seed(config.seed % 2**32)
    torch.manual_seed(config.seed)
    if config.threads:
        torch.set_num_threads(config.threads)


def draw_seed(seed: int, number: int, rank: int, iteration: int) -> int:
    """Seed of generator `number`: the run's own for the first, and hashes of it for all others, because a CPU's
    generator uses the lower 32 bits only."""
    if number == rank == iteration == 0:
        return seed
    return environment_seed(environment_seed(environment_seed(seed, number), rank), iteration)
