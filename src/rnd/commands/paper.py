"""rnd paper NAME [flags]: an experiment of the paper from nothing to its picture."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rnd.cli import parse, positional
from rnd.config import positive
from rnd.errors import RunError, UserError, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from rnd.paper.jobs import Scheduler
    from rnd.paper.plan import Cell, Scale
    from rnd.paper.recipes import Recipe

PAPER = {
    "figure2": "rnd.paper.figure2",
    "noisy-tv": "rnd.paper.noisy_tv",
    "prediction-errors": "rnd.paper.prediction_errors",
}
"""Experiments that are programs of their own: name to a module with `main(arguments)`."""


@dataclass(frozen=True)
class Options:
    """What to do with an experiment."""

    list: bool = False
    """Show arms, seeds, frames and the estimated time here, and stop."""
    scale: float = 1.0
    """Shrink frames by this factor, environments and seeds by its fourth root; pictures say so."""
    jobs: int = 1
    """Cells trained at once on this machine."""
    ray: str | None = None
    """Train on a Ray cluster instead: its address (host:6379), `auto`, or `local` to start one here."""
    cpus: int | None = None
    """With --ray: CPUs of a run; default: a GPU's share, or one."""
    gpus: float | None = None
    """With --ray: GPUs of a run, also parts of one; default: one where the cluster has any."""
    only: str | None = None
    """One arm."""
    seed: int | None = None
    """One seed."""
    dry_run: bool = False
    """Print what would be run, and stop."""
    iqm: bool = False
    """Interquartile mean with 95% bootstrap intervals, instead of mean and standard error."""
    out: str = "runs/paper"
    """Folder of pictures and runs; runs that are there already are reused."""
    episodes: int = 10
    """Figure 1: the best of so many episodes."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def main(arguments: list[str]) -> None:
    from rnd.paper.recipes import RECIPES

    if arguments[:1] == ["--cell"] and len(arguments) == 2:
        from rnd.paper.cell import train

        train(Path(arguments[1]))
        return
    names = sorted({*RECIPES, *PAPER})
    description = f"Run an experiment of the paper and draw it. NAME: {', '.join(names)}."
    name = positional(Options, arguments)
    if name in PAPER:
        importlib.import_module(PAPER[name]).main(arguments)
        return
    options = parse(Options, arguments, prog=f"rnd paper {name or 'NAME'}", description=description)
    if not name and options.list:
        _list_all(options)
        return
    if not name:
        raise UserError(f"name an experiment: {', '.join(names)}")
    if name not in RECIPES:
        raise UserError(f"unknown experiment {name!r}; {nearest(name, names)}")
    _experiment(RECIPES[name](), options)


def _experiment(recipe: Recipe, options: Options) -> None:
    from rich.console import Console

    from rnd.paper.plan import Scale, State, cells

    positive(options, "jobs", "episodes")
    console, scale, out = Console(), Scale(options.scale), Path(options.out)
    chosen = cells(recipe, scale, out, only=options.only, seed=options.seed)
    chosen = [cell.on(options.device) for cell in chosen]
    if options.list:
        _list(recipe, chosen, scale, out, console)
        return
    todo = [cell for cell in chosen if cell.state() is not State.FINISHED]
    _plan(recipe, chosen, scale, console, every=options.dry_run)
    if options.dry_run:
        return
    failed = _run(todo, _scheduler(options, console), console)
    _draw(recipe, cells(recipe, scale, out), scale, options, console)
    if failed:
        raise RunError(f"{failed} of {len(todo)} cells did not finish; call the same command again to go on")


def _scheduler(options: Options, console: Console) -> Scheduler:
    if options.ray is not None:
        from rnd.paper.ray_jobs import RayJobs

        return RayJobs(options.ray, console, options.cpus, options.gpus)
    from rnd.paper.local import LocalJobs

    return LocalJobs(options.jobs, console)


def _run(todo: list[Cell], scheduler: Scheduler, console: Console) -> int:
    failed = 0
    for outcome in scheduler.run(todo) if todo else ():
        name = f"{outcome.cell.arm.name}, seed {outcome.cell.seed}"
        if outcome.problem:
            failed += 1
            _say(console, f"{name}: not finished, {outcome.problem}")
        else:
            _say(console, f"{name}: finished")
    return failed


def _draw(recipe: Recipe, all_cells: list[Cell], scale: Scale, options: Options, console: Console) -> None:
    from rnd.paper.drawing import draw_recipe, picture_name

    out = Path(options.out)
    if recipe.name == "figure1":
        from rnd.report.watch import WatchOptions, watch

        chosen = WatchOptions(episodes=options.episodes, note=scale.describe(recipe))
        paths = watch(all_cells[0].path, out / picture_name(recipe, scale), chosen, console)
    else:
        paths = draw_recipe(recipe, all_cells, scale, out, iqm=options.iqm)
    for path in paths:
        _say(console, f"  {path}")


def _plan(recipe: Recipe, chosen: list[Cell], scale: Scale, console: Console, *, every: bool) -> None:
    from rnd.paper.plan import State
    from rnd.record.progress import count

    states = [cell.state() for cell in chosen]
    parts = [f"{states.count(state)} {state}" for state in State if state in states]
    _say(console, f"{recipe.title}: {len(chosen)} {'run' if len(chosen) == 1 else 'runs'}, {', '.join(parts)}")
    scaled = scale.describe(recipe)
    if scaled:
        _say(console, f"scaled: {scaled}")
    if every:
        for cell, state in zip(chosen, states, strict=True):
            _say(
                console,
                f"  {state:<10} {cell.arm.name}, seed {cell.seed}: {count(cell.config.frames)} frames, {cell.path}",
            )


def _list(recipe: Recipe, chosen: list[Cell], scale: Scale, out: Path, console: Console) -> None:
    """Arms, seeds, frames and the time that they would take here."""
    from rich.table import Table

    from rnd.paper.speed import frames_per_second
    from rnd.record.progress import count, duration

    with console.status("measuring frames a second"):
        speed = frames_per_second(recipe, chosen, out)
    table = Table(box=None, pad_edge=False)
    for title in ("arm", "bonus", "policy", "envs", "frames a run", "seeds", "estimated time here"):
        table.add_column(title, overflow="fold")
    total = 0.0
    for arm in recipe.arms:
        own = [cell for cell in chosen if cell.arm is arm]
        if not own:
            continue
        config = own[0].config
        seconds = sum(cell.config.frames for cell in own) / speed[config.policy][0]
        total += seconds
        sizes = str(config.env.num_envs), count(config.frames), str(len(own))
        table.add_row(arm.name, config.bonus, config.policy, *sizes, duration(seconds))
    _say(console, recipe.title + (f" (scaled: {scale.describe(recipe)})" if scale.factor < 1 else ""))
    console.print(table)
    measured = ", ".join(f"{policy} {count(fps)} frames/s from {source}" for policy, (fps, source) in speed.items())
    _say(console, f"all of it, one run after the other: about {duration(total)}; an estimate ({measured})")


def _list_all(options: Options) -> None:
    """All experiments in a line each."""
    from rich.console import Console

    from rnd.paper.plan import Scale
    from rnd.paper.recipes import RECIPES
    from rnd.record.progress import count

    console, scale = Console(), Scale(options.scale)
    for name, recipe_of in RECIPES.items():
        recipe = recipe_of()
        seeds = scale.seeds(recipe.seeds)
        frames = sum(scale.config(arm.config).frames for arm in recipe.arms) * seeds
        _say(
            console, f"{name:<9} {len(recipe.arms):>2} arms × {seeds} seeds, {count(frames):>9} frames  {recipe.title}"
        )
    for name, module in PAPER.items():
        text = (importlib.import_module(module).__doc__ or "").strip().splitlines()
        _say(console, f"{name:<9} {text[0] if text else ''}")
    _say(console, f"rnd paper NAME --list shows arms and estimated times of all but {', '.join(PAPER)}")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
