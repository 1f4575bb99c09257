"""rnd replay FILE: play a traced episode again, without the agent, and check every step of it."""

from __future__ import annotations

from dataclasses import dataclass

from rnd.cli import parse, positional
from rnd.foundation.errors import UserError

DESCRIPTION = (
    "Play the actions of a trace that `rnd evaluate --trace` wrote. An Atari game is played in the native core and in "
    "ale-py, side by side: reward, RAM and frame are compared at every step, score and rooms with the trace. FILE is a "
    "trace, a folder that has a trace.json, or zoo:NAME."
)


@dataclass(frozen=True)
class Options:
    """Flags of `rnd replay`."""

    trust: bool = False
    """Run the code that the trace names (module:attribute) without a question."""
    zoo: str | None = None
    """Folder of zoo:NAME; default $RND_ZOO, or results/ here or in the checkout."""


def main(arguments: list[str]) -> None:
    target = positional(Options, arguments, "rnd replay FILE: name a trace that rnd evaluate --trace wrote")
    options = parse(Options, arguments, prog="rnd replay FILE", description=DESCRIPTION)

    from rich.console import Console

    from rnd.checkpoint import trust, zoo
    from rnd.foundation.console import say
    from rnd.metrics.progress import Phase
    from rnd.training.replay import describe, replay
    from rnd.training.trace import read_trace

    console, path = Console(), zoo.locate(target, options.zoo)
    if path.name == zoo.AGENT:  # the trace is beside it
        path = path.parent
    if path.is_dir() and not (path / zoo.TRACE).exists():
        raise UserError(f"{path} has no {zoo.TRACE}; to make one: rnd evaluate {target} --trace")
    path = path / zoo.TRACE if path.is_dir() else path
    trace = read_trace(path)
    trust.check(trace.config, path, options.trust)
    with Phase(console, "replaying", len(trace.actions), unit="steps") as phase:
        played = replay(trace, phase.advance)
    for line in describe(trace, played):
        say(console, line)
