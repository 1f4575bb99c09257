"""Play a trained agent and write one episode as video, strip of frames and table.

There are two passes. The first finds the best episode and its spikes. The second plays the same episode again and
writes each frame at once, so that no more than one screen and those of the spikes are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from rnd.checkpoint.export import SavedAgent, agent_name, checkpoint_text, load_agent
from rnd.config import Config
from rnd.config.ranges import check_ranges
from rnd.foundation.console import say
from rnd.foundation.errors import RunError
from rnd.foundation.files import check_writable, make_folder, replacing_by_name, write_atomically
from rnd.metrics.progress import Phase
from rnd.report.options import WatchOptions
from rnd.report.play import PlayedEpisode, episode, play
from rnd.report.runs import game_of
from rnd.report.strip import draw_strip, events_near, find_spikes, table
from rnd.report.video import Mp4, Overlay


def watch(path: Path, options: WatchOptions, console: Console, note: str = "") -> list[Path]:
    """Play the agent at `path`, write .mp4, .png (with `note` under it), .svg and .csv, and return their paths. For
    an agent whose bonus was left out of its file there is no curve to draw: .mp4 and .csv alone."""
    check_ranges(options)
    stem = Path(options.out) if options.out else default_stem(path)
    video = stem.with_name(stem.name + ".mp4")
    agent = load_agent(path, "cpu", options.trust, options.best)
    say(console, checkpoint_text(agent.card, options.best))
    make_folder(stem.parent, path)
    check_writable(video)
    rooms = agent.config.env.id.startswith("ALE/")
    if agent.bonus is None:
        say(console, f"{path} has no bonus: its file has the policy alone; the game is shown without it")
        best = best_episode(agent, options, console)
        overlay = Overlay(f"{game_of(agent.config)}: an episode, return {best.score:g}", best.bonus, [], rooms=rooms)
        write_video(agent, best, overlay, video, options, console)
        steps = stem.with_name(stem.name + ".csv")
        write_atomically(steps, table(best, []))
        return [video, steps]
    best = best_episode(agent, options, console)
    if not np.isfinite(best.bonus).any():
        raise RunError("the episode ended with its first step: there is no bonus to show; play more with --episodes")
    spikes = find_spikes(best.bonus, options.spikes)
    title = f"{game_of(agent.config)}: {agent.config.bonus} bonus over an episode, return {best.score:g}"
    overlay = Overlay(title, best.bonus, spikes, rooms=rooms)
    frames = write_video(agent, best, overlay, video, options, console)
    return [video, *draw_strip(best, spikes, frames, stem, title, note)]


def default_stem(path: Path) -> Path:
    """RUN/watch/episode for a run folder. An agent's file or a checkpoint may lie where nothing should be added."""
    if (path / "config.json").is_file():
        return path / "watch" / "episode"
    return Path(Config.out) / "watch" / agent_name(path)


def best_episode(agent: SavedAgent, options: WatchOptions, console: Console) -> PlayedEpisode:
    """The episode with the highest return; of equal returns, the one with the highest bonus."""

    numbers = range(options.episodes) if options.number is None else [options.number]

    def played(phase: Phase) -> Iterator[PlayedEpisode]:
        for done, number in enumerate(numbers, 1):
            yield episode(agent, options.seed, number, options.greedy)
            phase.advance(done)

    with Phase(console, "playing", len(numbers), unit="episodes") as phase:
        return max(played(phase), key=lambda one: (one.score, float(np.nan_to_num(one.bonus).max())))


def write_video(
    agent: SavedAgent, best: PlayedEpisode, overlay: Overlay, path: Path, options: WatchOptions, console: Console
) -> dict[int, np.ndarray]:
    """Play the episode again and write the video; returns spike index to screen."""
    numbers = {index: number for number, index in enumerate(overlay.spikes, 1)}
    frames: dict[int, np.ndarray] = {}
    recent = ""
    replayed = play(agent, options.seed, best.number, screens=True, greedy=options.greedy)
    fps = options.fps or (30 if agent.config.env.id.startswith("ALE/") else 10)
    filming = Phase(console, "filming", len(best.steps))
    with replacing_by_name(path) as (private,), Mp4(private, fps) as video, filming as phase:
        for index, (step, expected) in enumerate(zip(replayed, best.steps, strict=False)):
            if (step.bonus, step.reward) != (expected.bonus, expected.reward):
                text = "the environment must be deterministic for a seed"
                raise RunError(f"the episode differs at step {step.step} when played again: {text}")
            if index in numbers:
                words = events_near(best, index)
                recent = f"{numbers[index]}" + (f": {words}" if words else ": a spike of the bonus")
                assert step.screen is not None
                frames[index] = step.screen.copy()
            video.write(overlay.frame(index, step, recent))
            phase.advance(index + 1)
    return frames
