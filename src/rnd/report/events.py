"""Names for what happened in a step: from the score, the lives, and for Montezuma's Revenge from the game's memory.

The inventory (RAM byte 65) was checked against the emulator: the key sets 0x02, the sword 0x20. Opening a door removes
the key and gives 300 points; killing a monster removes the sword and gives 2,000.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnd.envs.spec import Arrays, EnvSpec

MONTEZUMA = "ALE/MontezumaRevenge-v5"
INVENTORY = 65
KEYS, SWORDS = 0x1E, 0x60


class Events:
    """Compares each step with the one before. `single_env` is the one environment whose arrays these are."""

    def __init__(self, spec: EnvSpec, single_env: Any, arrays: Arrays):
        self.montezuma, self.rooms = spec.id == MONTEZUMA, spec.has_rooms and not spec.has_cells
        self._single_env, self._arrays = single_env, arrays
        self._lives = int(arrays["lives"][0])
        self._ram = self._memory()
        self._rooms = {int(arrays["room"][0])}

    def after(self, reward: float, done: bool) -> tuple[str, ...]:
        """The events of the last step. Call it once after every step."""
        if done:  # lives, room and memory are those of the next episode already
            return (*self._reward(reward), "end of the episode")
        found = []
        lives, room, ram = int(self._arrays["lives"][0]), int(self._arrays["room"][0]), self._memory()
        if lives < self._lives:
            found.append("life lost")
        if self.rooms and room not in self._rooms:
            self._rooms.add(room)
            found.append(f"new room {room % 256}" + (f" of level {room // 256 + 1}" if room >= 256 else ""))
        if self.montezuma:
            found += inventory_events(int(self._ram[INVENTORY]), int(ram[INVENTORY]), reward)
        else:
            found += self._reward(reward)
        self._lives, self._ram = lives, ram
        return tuple(found)

    def _reward(self, reward: float) -> list[str]:
        return [f"reward {reward:+g}"] if reward else []

    def _memory(self) -> np.ndarray:
        return self._single_env.ale.getRAM().copy() if self.montezuma else np.zeros(128, np.uint8)


def inventory_events(before: int, after: int, reward: float) -> list[str]:
    """Items taken and used in Montezuma's Revenge."""
    gained, spent = after & ~before, before & ~after
    if gained & KEYS:
        return ["key taken"]
    if gained & SWORDS:
        return ["sword taken"]
    if gained:
        return ["item taken"]
    if spent & KEYS and reward > 0:
        return ["door opened"]
    if spent & SWORDS and reward > 0:
        return ["monster killed"]
    return [f"gem taken (+{reward:g})"] if reward >= 1000 else [f"reward {reward:+g}"] if reward else []
