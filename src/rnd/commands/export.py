"""rnd export RUN [flags]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rnd.cli import parse, positional
from rnd.foundation.console import printable
from rnd.foundation.errors import UserError

DESCRIPTION = (
    "Share a run. Without flags: the agent (policy, and of the bonus predictor, target and normaliser) in one "
    ".safetensors file with a card beside it, which `rnd watch FILE` plays. With --checkpoint or --max-part: all that "
    "`rnd resume` needs, in parts, which `rnd import` joins."
)


@dataclass(frozen=True)
class Options:
    """Flags of `rnd export`."""

    out: str | None = None
    """File (agent; .safetensors, or .safetensors.xz to compress it) or new folder (parts); default: in the run folder,
    under export/; with --card the folder, default results/RUN."""
    checkpoint: bool = False
    """Export the whole checkpoint instead of the agent."""
    half: bool = False
    """Store the agent's weights in 16 bits: half the size, the same play but for rare ties."""
    bonus: Literal["yes", "no"] | None = None
    """Whether the agent's file has the bonus beside the policy; default yes, with --card no. Without it a file of the
    paper's agent has a quarter of the size, plays the same, and shows no bonus."""
    card: bool = False
    """Write a folder for the zoo: agent in 16 bits, card, evaluation and video, where they were made, and tables of at
    most 1,000 rows."""
    best: bool = False
    """Take the checkpoint with the highest mean return of 100 episodes instead of the newest."""
    max_part: str | None = None
    """Largest size of a file, for example 15MB; means --checkpoint."""


def main(arguments: list[str]) -> None:
    name = positional(Options, arguments, "rnd export RUN: name the run folder, for example runs/my-run")
    options = parse(Options, arguments, prog="rnd export RUN", description=DESCRIPTION)

    from rnd.checkpoint import zoo
    from rnd.checkpoint.card import write_card
    from rnd.checkpoint.export import checkpoint_text, export_agent, one_checkpoint, unpacked_name
    from rnd.checkpoint.folder import nearest_run
    from rnd.checkpoint.parts import export_parts, parse_size
    from rnd.foundation.files import read_json

    run, out = Path(name), Path(options.out) if options.out else None
    if options.best and run.is_file():
        raise one_checkpoint(run, "an exported agent")
    if not (run / "config.json").is_file():
        raise UserError(f"{run} is not a run folder: it has no config.json{nearest_run(run)}")

    if options.half and (options.checkpoint or options.max_part):
        raise UserError(
            "--half is for the agent alone: a checkpoint in 16 bits could not continue exactly; leave it out"
        )
    if options.bonus and (options.checkpoint or options.max_part):
        raise UserError("--bonus is for the agent alone: a checkpoint without it could not continue; leave it out")
    if options.best and (options.checkpoint or options.max_part):
        raise UserError("--best is for an agent: a run continues from its newest checkpoint; leave it out")
    if options.card:
        if options.checkpoint or options.max_part:
            raise UserError("--card is for an agent, not for a checkpoint: leave out --checkpoint and --max-part")
        if out is None:
            where = zoo.source()
            out = (where if isinstance(where, Path) else Path("results")) / run.resolve().name
        written = write_card(run, out, options.bonus == "yes", options.best)
        done = [checkpoint_text(read_json(written / "agent.json"), options.best), f"card in {written}"]
    elif options.checkpoint or options.max_part:
        size = parse_size(options.max_part) if options.max_part else None
        parts = export_parts(run, out or run / "export" / "parts", size)
        done = [f"{len(parts)} files in {parts[0].parent}; to join them: rnd import {parts[0].parent}"]
    else:
        written = export_agent(run, out, options.half, options.bonus != "no", options.best)
        description = read_json(unpacked_name(written).with_suffix(".json"))
        done = [checkpoint_text(description, options.best), f"agent in {written}"]
    for line in done:
        print(printable(line))
