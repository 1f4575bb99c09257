"""SplitMix64: the per-environment generator of every Atari backend.

Its state is one 64-bit word, so the C++ core and ale-py worker processes draw the same numbers, and saving a generator
is saving an integer.
"""

from __future__ import annotations

import numpy as np

_MASK = (1 << 64) - 1


def mix(state: int) -> int:
    """The output function: a 64-bit hash of a 64-bit word."""
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class SplitMix64:
    """A generator whose whole state is the integer `state`."""

    def __init__(self, state: int):
        self.state = state & _MASK

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        return mix(self.state)

    def uniform(self) -> float:
        """A float64 in [0, 1)."""
        return (self.next() >> 11) * 2.0**-53


def environment_seed(seed: int, env: int) -> int:
    """Seed of environment `env` of a run; neighbouring runs and environments get unrelated seeds."""
    return mix((mix(seed & _MASK) + env * 0x9E3779B97F4A7C15) & _MASK)


def next_of_each(states: np.ndarray) -> np.ndarray:
    """The next number of many `SplitMix64`. Their states, uint64, are advanced in place."""
    states += np.uint64(0x9E3779B97F4A7C15)
    z = (states ^ (states >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: np.ndarray = z ^ (z >> np.uint64(31))
    return out
