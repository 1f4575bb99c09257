"""Play a trained agent and show it: video, strip of frames and table of one episode.

Two passes: the first finds the best episode and its spikes, the second plays the same episode again and writes the
pictures as they come, so that an hour of play needs no more memory than a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from rnd.config import positive
from rnd.errors import RunError
from rnd.record.export import Agent, load_agent
from rnd.record.progress import Phase
from rnd.report.play import Episode, episode, play
from rnd.report.runs import game_of
from rnd.report.spikes import MOST, spikes
from rnd.report.strip import draw_strip, named
from rnd.report.video import Mp4, Overlay


@dataclass(frozen=True)
class WatchOptions:
    """What to play and how to show it."""

    episodes: int = 1
    """Play so many episodes and show the one with the highest return (the highest bonus where returns are equal)."""
    seed: int = 1
    """The same seed plays the same episodes."""
    spikes: int = MOST
    """Spikes shown at most."""
    fps: int | None = None
    """Steps a second of the video; default 30 for Atari, 10 elsewhere."""
    note: str | None = None
    """What the picture must admit."""


def watch(path: Path, stem: Path, options: WatchOptions, console: Console) -> list[Path]:
    """Play, and write STEM.mp4, .png, .svg and .csv; returns the paths."""
    positive(options, "episodes", "spikes", "fps")
    agent = load_agent(path, "cpu")
    best = best_episode(agent, options, console)
    if not best.moments:
        raise RunError("the episode ended with its first step: there is nothing to show")
    marked = spikes(best.bonus, options.spikes)
    title = f"{game_of(agent.config)}: {agent.config.bonus} bonus over an episode, return {best.score:g}"
    frames = film(agent, best, marked, stem.with_name(stem.name + ".mp4"), title, options, console)
    pictures = draw_strip(best, marked, frames, stem, title, options.note)
    return [stem.with_name(stem.name + ".mp4"), *pictures]


def best_episode(agent: Agent, options: WatchOptions, console: Console) -> Episode:
    """The episode worth showing."""
    best: Episode | None = None
    with Phase(console, "playing", options.episodes, unit="episodes") as phase:
        for number in range(options.episodes):
            played = episode(agent, options.seed, number)
            if best is None or worth(played) > worth(best):
                best = played
            phase.advance(number + 1)
    assert best is not None
    return best


def worth(played: Episode) -> tuple[float, float]:
    return played.score, float(played.bonus.max()) if played.moments else 0.0


def film(
    agent: Agent, best: Episode, marked: list[int], path: Path, title: str, options: WatchOptions, console: Console
) -> dict[int, np.ndarray]:
    """Play the episode again and write the video; returns the screens at the spikes."""
    atari = agent.config.env.id.startswith("ALE/")
    overlay = Overlay(title, best.bonus, marked, rooms=atari)
    numbers = {index: number for number, index in enumerate(marked, 1)}
    frames: dict[int, np.ndarray] = {}
    recent = ""
    replayed = play(agent, options.seed, best.seed, screens=True)
    fps = options.fps or (30 if atari else 10)
    with Mp4(path, fps) as video, Phase(console, "filming", len(best.moments)) as phase:
        for index, (moment, expected) in enumerate(zip(replayed, best.moments, strict=False)):
            if moment.bonus != expected.bonus:
                raise RunError(f"the episode did not repeat itself at step {moment.step}; the video would be false")
            if index in numbers:
                words = named(best, index)
                recent = f"{numbers[index]}" + (f": {words}" if words else ": a spike of the bonus")
                assert moment.screen is not None
                frames[index] = moment.screen.copy()
            video.write(overlay.frame(index, moment, recent))
            phase.advance(index + 1)
    return frames
