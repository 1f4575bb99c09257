"""Flags of `rnd watch`, apart from the code that plays: --help does not load torch."""

from __future__ import annotations

from dataclasses import dataclass

from rnd.config.ranges import NonNegativeInt, PositiveInt, Seed

MAX_SPIKES = 14
"""Default of the largest number of spikes."""


@dataclass(frozen=True)
class WatchOptions:
    """What to play and how to show it."""

    episodes: PositiveInt = 1
    """Play this many episodes and show the one with the highest return (of equal returns, the highest bonus)."""
    number: NonNegativeInt | None = None
    """Show this episode of the seed, counted from 0, instead of the best; `rnd evaluate` counts in the same way."""
    seed: Seed = 1
    """The same seed plays the same episodes."""
    greedy: bool = False
    """Take the most probable action instead of a sample."""
    best: bool = False
    """Take the run's checkpoint with the highest mean return of 100 episodes instead of the newest."""
    spikes: PositiveInt = MAX_SPIKES
    """Largest number of spikes of the bonus to show."""
    fps: PositiveInt | None = None
    """Steps per second of the video; default 30 for Atari, 10 elsewhere."""
    out: str | None = None
    """Where to write, without file ending; default: RUN/watch/episode, or runs/watch/NAME for a file or checkpoint."""
    trust: bool = False
    """Run the code that the agent names (module:attribute) without a question."""
    zoo: str | None = None
    """Folder or http(s) address of zoo:NAME; default $RND_ZOO, or results/ here or in the checkout."""
