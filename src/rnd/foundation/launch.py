"""What torchrun tells a process in its environment variables. No torch: every command reads this file."""

from __future__ import annotations

import os
from typing import NamedTuple

from rnd.foundation.errors import UserError


class Launch(NamedTuple):
    """This process among those of a run."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    """Processes on this machine."""


def launched() -> Launch:
    """The numbers that torchrun has set; those of one process without it. Refuses numbers that do not fit together."""
    world, rank = _number("WORLD_SIZE", 1), _number("RANK", 0)
    local_world, local_rank = _number("LOCAL_WORLD_SIZE", 1), _number("LOCAL_RANK", 0)
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    problem = f"{missing[0]} is not set" if world > 1 and missing else ""
    if rank >= world:
        problem = f"RANK is {rank} with WORLD_SIZE {world}"
    if "LOCAL_WORLD_SIZE" in os.environ and local_rank >= local_world:  # other launchers set the rank alone
        problem = f"LOCAL_RANK is {local_rank} with LOCAL_WORLD_SIZE {local_world}"
    if problem:
        raise UserError(
            f"the environment variables of torchrun do not fit together: {problem}; start with "
            "torchrun --standalone --nproc-per-node N -m rnd, or unset RANK, WORLD_SIZE and their LOCAL_ ones"
        )
    return Launch(rank, world, local_rank, local_world)


def _number(name: str, least: int) -> int:
    """An environment variable, `least` where it is not set."""
    text = os.environ.get(name, str(least))
    if not (text.isascii() and text.isdecimal() and len(text) < 10) or int(text) < least:
        raise UserError(f"the environment variable {name} must be a number from {least} on, not {text!r}; unset it")
    return int(text)
