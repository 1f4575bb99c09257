"""rnd watch RUN_OR_FILE [flags]: an episode as video, with the bonus beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rnd.cli import parse, positional

DESCRIPTION = (
    "Play a trained agent and write one episode as video, as a strip of frames under the bonus curve (figure 1 of the "
    "paper) and as a table. RUN_OR_FILE is a run folder, a checkpoint, or an exported .safetensors file."
)


@dataclass(frozen=True)
class Options:
    """Flags of `rnd watch`."""

    episodes: int = 1
    """Play so many episodes and show the one with the highest return."""
    seed: int = 1
    """The same seed plays the same episodes."""
    spikes: int = 14
    """Spikes of the bonus shown at most."""
    fps: int | None = None
    """Steps a second of the video; default 30 for Atari, 10 elsewhere."""
    out: str | None = None
    """Where to write, without ending; default: RUN/watch/episode, or the file's name."""


def main(arguments: list[str]) -> None:
    target = positional(Options, arguments, "rnd watch RUN_OR_FILE: name a run folder or an exported agent")
    options = parse(Options, arguments, prog="rnd watch RUN_OR_FILE", description=DESCRIPTION)

    from rich.console import Console

    from rnd.record.export import unpacked_name
    from rnd.report.watch import WatchOptions, watch

    path, console = Path(target), Console()
    default = unpacked_name(path).with_suffix("") if path.is_file() else path / "watch" / "episode"
    chosen = WatchOptions(options.episodes, options.seed, options.spikes, options.fps)
    for written in watch(path, Path(options.out) if options.out else default, chosen, console):
        console.print(f"  {written}", highlight=False, soft_wrap=True, markup=False)
