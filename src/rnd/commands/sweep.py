"""rnd sweep GAME [flags]: search for a better config."""

from __future__ import annotations

from dataclasses import dataclass

from rnd.cli import value_of
from rnd.commands.train import StartFlags, read_flags, seeds_of
from rnd.config.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from rnd.foundation.errors import UserError
from rnd.sweep.score import Measure

DESCRIPTION = (
    "Search for a better config of GAME with Optuna: trials with other values of some fields, one run per seed each, "
    "bad ones ended early. The first trial has the values of the other flags, which are those of rnd train. A repeated "
    "command continues. The defaults of the flags are those of the game, or of --config."
)


@dataclass(frozen=True)
class Flags(StartFlags):
    """Flags of `rnd sweep`."""

    trials: PositiveInt = 20
    """Trials in all; with more, a repeated command continues."""
    over: tuple[str, ...] = ()
    """Fields to search: NAME, NAME=LOW..HIGH or NAME=A,B,C; default: lr, bonus_lr, entropy_coef, int_coef, gamma_ext.
    GAME stands before it."""
    seeds: str = "1-2"
    """Seeds of every trial: 1-3, or 1,2,7. The first decides whether a trial is worth the others."""
    finals: NonNegativeInt = 3
    """More seeds with which the three best trials and the first one are compared in the end; 0: none, and the best of
    the search is taken as it is."""
    measure: Measure = "return_mean"
    """What a trial is judged by: its mean over the second half of the frames."""
    jobs: PositiveInt = 1
    """Runs trained at the same time on this machine."""
    ray: str | None = None
    """Train on a Ray cluster instead: its address (host:6379), `auto`, or `local` to start one here."""
    cpus: PositiveInt | None = None
    """With --ray: CPUs per run; default: the share of its GPU, or one."""
    gpus: PositiveFloat | None = None
    """With --ray: GPUs per run, also a fraction; default: one where the cluster has any."""


def main(arguments: list[str]) -> None:
    flags, config = read_flags(Flags, arguments, "rnd sweep [GAME]", DESCRIPTION)
    if value_of("seed", arguments) is not None:
        raise UserError(f"--seeds {flags.seeds} names the seeds of every trial; leave out --seed {flags.seed}")

    from rich.console import Console

    from rnd.jobs.local import LocalJobs
    from rnd.jobs.ray_jobs import RayJobs
    from rnd.jobs.scheduler import Scheduler
    from rnd.sweep.plan import Plan
    from rnd.sweep.space import space_of
    from rnd.sweep.sweep import search

    space, seeds = space_of(config, flags.over), tuple(seeds_of(flags.seeds))
    plan = Plan(config, space, seeds, flags.measure, flags.trials, flags.finals)
    console = Console()
    scheduler: Scheduler = LocalJobs(flags.jobs, console)
    if flags.ray is not None:
        scheduler = RayJobs(flags.ray, console, flags.cpus, flags.gpus)
    search(plan, scheduler, console)
