"""rnd evaluate RUN_OR_FILE [flags]: the score of a trained agent over many episodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnd.cli import optional_value, parse, positional
from rnd.config import Config
from rnd.config.ranges import PositiveInt, Seed
from rnd.foundation.text import significant

if TYPE_CHECKING:
    from rich.console import Console

    from rnd.checkpoint.export import SavedAgent
    from rnd.training.evaluation import Evaluation

DESCRIPTION = (
    "Play a trained agent for many episodes, in parallel, with sampled actions and the environment of its training "
    "(sticky actions for Atari), and print its score. RUN_OR_FILE is a run folder, a checkpoint, an exported "
    ".safetensors file, or zoo:NAME."
)

DEFAULT_TRACE = "default"


@dataclass(frozen=True)
class Options:
    """Flags of `rnd evaluate`."""

    episodes: PositiveInt = 100
    """Episodes to play."""
    seed: Seed = 1
    """The same seed plays the same episodes."""
    greedy: bool = False
    """Take the most probable action instead of a sample."""
    best: bool = False
    """Take the run's checkpoint with the highest mean return of 100 episodes instead of the newest."""
    against: str | None = None
    """Another agent: play the same episodes with it, and print the difference with its interval."""
    video: bool = False
    """Write a video of the best episode, as `rnd watch` does."""
    trace: str | None = None
    """Write the actions of the best episode, which `rnd replay` plays again without the agent; the file may be left
    out: RUN/trace.json, or runs/evaluate/NAME-trace.json."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    out: str | None = None
    """File of the results (JSON); default: RUN/evaluation.json, or runs/evaluate/NAME.json for a file or checkpoint."""
    trust: bool = False
    """Run the code that the agent names (module:attribute) without a question."""
    zoo: str | None = None
    """Folder or http(s) address of zoo:NAME; default $RND_ZOO, or results/ here or in the checkout."""


def main(arguments: list[str]) -> None:
    optional_value("--trace", arguments, DEFAULT_TRACE)
    target = positional(Options, arguments, "rnd evaluate RUN_OR_FILE: name a run folder or an exported agent")
    options = parse(Options, arguments, prog="rnd evaluate RUN_OR_FILE", description=DESCRIPTION)

    from rich.console import Console

    from rnd.checkpoint.export import agent_name, checkpoint_text, load_agent
    from rnd.checkpoint.zoo import locate
    from rnd.device.devices import resolve_device
    from rnd.foundation.console import say
    from rnd.foundation.files import check_writable, make_folder, write_json
    from rnd.report.options import WatchOptions
    from rnd.report.watch import watch
    from rnd.training.evaluation import difference
    from rnd.training.replay import record

    console, path = Console(), locate(target, options.zoo)
    device = resolve_device(Config(device=options.device))
    agent = load_agent(path, device, options.trust, options.best)
    say(console, checkpoint_text(agent.card, options.best))
    other = load_agent(locate(options.against, options.zoo), device, options.trust) if options.against else None
    if other and other.config.env.id != agent.config.env.id:
        ours, theirs = agent.config.env.id, other.config.env.id
        say(console, f"warning: {options.against} plays {theirs}, not {ours}: the scores are those of two tasks")
    out = Path(options.out) if options.out else default_out(path)
    make_folder(out.parent, path)  # before the episodes: what cannot be written costs no time
    check_writable(out)
    result = play(agent, options, console)
    data = result.to_dict()
    say(console, f"{target}: {described(result)}")
    if options.against and other:
        result_other = play(other, options, console)
        data["against"] = result_other.to_dict() | difference(result, result_other)
        say(console, f"{options.against}: {described(result_other)}")
        compared = data["against"]
        low, high = compared["mean_difference_interval_95"]
        mean = significant(compared["mean_difference"])
        say(console, f"difference {mean} (95%: {significant(low)} to {significant(high)})")
        say(console, f"probability that the first scores higher: {compared['probability_of_improvement']:.2f}")
    write_json(out, data)
    say(console, f"  {out}")
    if options.trace:
        file = default_trace(path) if options.trace == DEFAULT_TRACE else Path(options.trace)
        make_folder(file.parent, path)
        write_json(file, record(agent, agent_name(path), result).to_dict())
        say(console, f"  {file}; to play it: rnd replay {file}")
    if options.video:
        same = {name: getattr(options, name) for name in ("seed", "greedy", "best", "trust")}
        shown = WatchOptions(number=result.best_episode, **same)
        for written in watch(path, shown, console):
            say(console, f"  {written}")


def default_out(path: Path) -> Path:
    """RUN/evaluation.json for a run folder; an agent's file or a checkpoint may lie where nothing should be added."""
    from rnd.checkpoint.export import agent_name
    from rnd.checkpoint.zoo import EVALUATION

    if (path / "config.json").is_file():
        return path / EVALUATION
    return Path(Config.out) / "evaluate" / f"{agent_name(path)}.json"


def default_trace(path: Path) -> Path:
    """RUN/trace.json, or for a file or a checkpoint beside its evaluation."""
    from rnd.checkpoint.zoo import TRACE

    beside = default_out(path)
    return beside.with_name(TRACE) if (path / "config.json").is_file() else beside.with_name(f"{beside.stem}-{TRACE}")


def play(agent: SavedAgent, options: Options, console: Console) -> Evaluation:
    from rnd.metrics.progress import Phase
    from rnd.training.evaluation import evaluate

    with Phase(console, "playing", options.episodes, unit="episodes") as phase:
        return evaluate(agent, options.episodes, options.seed, options.greedy, phase.advance)


def described(result: Evaluation) -> str:
    """The statistics in one line."""
    found: dict[str, Any] = result.summary()
    low, high = found["mean_return_interval_95"]
    parts = [
        f"mean return {significant(found['mean_return'])} (95%: {significant(low)} to {significant(high)})",
        f"median {significant(found['median_return'])}",
        f"interquartile mean {significant(found['interquartile_mean_return'])}",
        f"best {significant(found['best_return'])}",
        f"length {found['mean_length']:,.0f}",
    ]
    if "success" in found:
        parts.append(f"success {found['success']:.0%}")
    if "cells_per_episode" in found:
        parts.append(f"cells per episode {found['cells_per_episode']:.1f}")
    if "rooms" in found:
        parts.append(f"rooms {found['rooms']} ({found['rooms_per_episode']:.1f} per episode)")
    return ", ".join(parts)
