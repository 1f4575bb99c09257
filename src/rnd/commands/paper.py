"""rnd paper NAME [flags]: train the runs of an experiment of the paper and draw its image."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rnd.cli import parse, positional
from rnd.config.ranges import Frames, PositiveFloat, PositiveInt, Seed
from rnd.foundation.console import say
from rnd.foundation.errors import RunError, UserError, nearest
from rnd.foundation.text import count, duration
from rnd.jobs.planned import PlannedRun, State
from rnd.paper.drawing import draw_experiment, image_name, lines_of
from rnd.paper.experiments import EXPERIMENTS, Experiment, bonuses, efficiency
from rnd.paper.plan import Scale, planned_runs
from rnd.paper.speed import frames_per_second
from rnd.report.figure import footer
from rnd.report.options import WatchOptions

PROGRAMS = {
    "figure2": "rnd.paper.figure2",
    "noisy-tv": "rnd.paper.noisy_tv",
    "prediction-errors": "rnd.paper.prediction_errors",
}
"""Experiments without arms: name to a module with a dataclass `Options` and `run(options, console)`."""
OURS = "bonuses and efficiency"


@dataclass(frozen=True)
class Options:
    """Flags of `rnd paper`."""

    list: bool = False
    """Print arms, seeds, frames and the estimated time on this machine, and exit."""
    scale: PositiveFloat = 1.0
    """Multiply frames by this factor, environments and seeds by its fourth root; the image states the sizes."""
    jobs: PositiveInt = 1
    """Runs trained at the same time on this machine."""
    ray: str | None = None
    """Train on a Ray cluster instead: its address (host:6379), `auto`, or `local` to start one here."""
    cpus: PositiveInt | None = None
    """With --ray: CPUs per run; default: the share of its GPU, or one."""
    gpus: PositiveFloat | None = None
    """With --ray: GPUs per run, also a fraction; default: one where the cluster has any."""
    only: tuple[str, ...] = ()
    """Only these arms."""
    seed: Seed | None = None
    """Only this seed."""
    dry_run: bool = False
    """Print the state of every run, and exit."""
    iqm: bool = False
    """Interquartile mean with 95% bootstrap intervals, instead of mean and standard error."""
    out: str = "runs/paper"
    """Folder of images and runs; existing runs are reused."""
    episodes: PositiveInt = 10
    """Figure 1: show the best of this many episodes."""
    game: str | None = None
    """`bonuses`: an Atari game or any task of `rnd train`; default montezuma."""
    frames: Frames | None = None
    """`bonuses` and `efficiency`: frames per run; default 200 million for Atari, those of `rnd train` for a task."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def main(arguments: list[str]) -> None:
    names = sorted({*EXPERIMENTS, *PROGRAMS})
    description = f"Run an experiment of the paper and draw it. NAME: {', '.join(names)}. {OURS} are not of the paper."
    # A program's name comes off first where it stands first: its flags may have several values, as --classes 1 2.
    name = arguments.pop(0) if arguments and arguments[0] in PROGRAMS else positional(Options, arguments)
    if name in PROGRAMS:
        program = importlib.import_module(PROGRAMS[name])
        flags = parse(program.Options, arguments, prog=f"rnd paper {name}", description=str(program.__doc__))
        program.run(flags, Console())
        return
    options = parse(Options, arguments, prog=f"rnd paper {name or 'NAME'}", description=description)
    if not name and options.list:
        _list_all(options)
        return
    if not name:
        raise UserError(f"name an experiment: {', '.join(names)}")
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; {nearest(name, names)}")
    if options.game and name != "bonuses":
        raise UserError(f"--game is for rnd paper bonuses; leave it out of rnd paper {name}")
    if options.frames and name not in ("bonuses", "efficiency"):
        raise UserError(f"--frames is for rnd paper {OURS}; {name} has those of the paper: --scale changes it")
    ours = {
        "bonuses": lambda: bonuses(options.game or "montezuma", options.frames),
        "efficiency": lambda: efficiency(options.frames),
    }
    _experiment(ours.get(name, EXPERIMENTS[name])(), options)


def _experiment(experiment: Experiment, options: Options) -> None:
    console, scale, out = Console(), Scale(options.scale), Path(options.out)
    chosen = planned_runs(experiment, scale, out, only=options.only, seed=options.seed)
    chosen = [planned.on(options.device) for planned in chosen]
    for planned in chosen:
        planned.config.validate()
    if options.list:
        _list(experiment, chosen, scale, out, console)
        return
    todo = [planned for planned in chosen if planned.state() is not State.FINISHED]
    _print_plan(experiment, chosen, scale, console, every=options.dry_run)
    if options.dry_run:
        return
    failed = _run(todo, options, console)
    _draw(experiment, planned_runs(experiment, scale, out), scale, options, console)
    if failed:
        raise RunError(f"{failed} of {len(todo)} runs did not finish; repeat the same command to continue")


def _run(todo: list[PlannedRun], options: Options, console: Console) -> int:
    """Train the runs and print each outcome; returns how many failed."""
    from rnd.jobs.local import LocalJobs
    from rnd.jobs.ray_jobs import RayJobs
    from rnd.jobs.scheduler import RunList, Scheduler

    scheduler: Scheduler = LocalJobs(options.jobs, console)
    if options.ray is not None:
        scheduler = RayJobs(options.ray, console, options.cpus, options.gpus)
    failed = 0
    for outcome in scheduler.run(RunList(todo)) if todo else ():
        failed += outcome.problem is not None
        end = f"not finished, {outcome.problem}" if outcome.problem else "finished"
        say(console, f"{outcome.planned.label}: {end}")
    return failed


def _draw(experiment: Experiment, runs: list[PlannedRun], scale: Scale, options: Options, console: Console) -> None:
    out = Path(options.out)
    if experiment.name == "figure1":
        from rnd.report.watch import watch

        chosen = WatchOptions(options.episodes, out=str(out / image_name(experiment, scale)))
        lines, best = lines_of(experiment, runs), f"the best of {options.episodes} episodes"
        paths = watch(runs[0].path, chosen, console, footer(best, scale.describe(experiment), lines, 190))
    else:
        paths = draw_experiment(experiment, runs, scale, out, iqm=options.iqm or experiment.iqm)
    for path in paths:
        say(console, f"  {path}")


def _print_plan(
    experiment: Experiment, chosen: list[PlannedRun], scale: Scale, console: Console, *, every: bool
) -> None:
    """How many runs are in each state; with `every`, also one line per run."""
    states = [planned.state() for planned in chosen]
    parts = [f"{states.count(state)} {state}" for state in State if state in states]
    say(console, f"{experiment.title}: {len(chosen)} {'run' if len(chosen) == 1 else 'runs'}, {', '.join(parts)}")
    if scaled := scale.describe(experiment):
        say(console, f"scaled: {scaled}")
    for planned, state in zip(chosen, states, strict=True) if every else ():
        say(console, f"  {state:<10} {planned.label}: {count(planned.config.frames)} frames, {planned.path}")


def _list(experiment: Experiment, chosen: list[PlannedRun], scale: Scale, out: Path, console: Console) -> None:
    """Arms, seeds, frames and the estimated time on this machine."""
    with console.status("measuring frames per second"):
        speed = frames_per_second(chosen, out)
    table = Table(box=None, pad_edge=False)
    for title in ("arm", "bonus", "policy", "envs", "frames per run", "seeds", "estimated time here"):
        table.add_column(title, overflow="fold", no_wrap=title == "arm")
    total = 0.0
    for arm in experiment.arms:
        own = [planned for planned in chosen if planned.group == arm.name]
        if not own:
            continue
        config = own[0].config
        seconds = sum(planned.config.frames for planned in own) / speed[config.policy][0]
        total += seconds
        sizes = str(config.env.num_envs), count(config.frames), str(len(own))
        table.add_row(arm.name, config.bonus, config.policy, *sizes, duration(seconds))
    say(console, experiment.title + (f" (scaled: {scale.describe(experiment)})" if scale.factor < 1 else ""))
    console.print(table)
    measured = ", ".join(f"{policy} {count(fps)} frames/s from {source}" for policy, (fps, source) in speed.items())
    say(console, f"all runs, one after the other: about {duration(total)}; an estimate ({measured})")


def _list_all(options: Options) -> None:
    """Print one line per experiment."""
    console, scale = Console(), Scale(options.scale)
    width = max(map(len, (*EXPERIMENTS, *PROGRAMS)))
    for name, recipe_of in EXPERIMENTS.items():
        experiment = recipe_of()
        seeds = scale.seeds(experiment.seeds)
        frames = sum(scale.config(arm.config).frames for arm in experiment.arms) * seeds
        sizes = f"{len(experiment.arms):>2} arms × {seeds:>2} seeds, {count(frames):>9} frames"
        say(console, f"{name:<{width}}  {sizes}  {experiment.title}")
    for name, module in PROGRAMS.items():
        say(console, f"{name:<{width}}  {str(importlib.import_module(module).__doc__).splitlines()[0]}")
    say(console, f"rnd paper NAME --list prints arms and estimated times of all but {', '.join(PROGRAMS)}")
