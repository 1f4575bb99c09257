"""From an experiment to its runs: which runs a figure needs, where their folders are, and which are left to train.

A planned run is one arm with one seed. Its folder is named after its config, so that figures share runs: the RND arm of
figure 8 is also an arm of figures 5, 6 and 9, and is trained once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from rnd.config import Config
from rnd.foundation.errors import UserError, nearest
from rnd.foundation.text import count
from rnd.jobs.planned import PlannedRun
from rnd.paper.experiments import Experiment
from rnd.report.runs import digest, game_of

FEWEST_SEEDS = 2
"""One seed alone has no standard error."""


@dataclass(frozen=True)
class Scale:
    """A smaller experiment: frames times `factor`, environments and seeds times its fourth root.

    The number of environments stays a multiple of 4 (the minibatches) and at least 4; seeds at least 2. The predictor's
    batch, in environments, is scaled like them: arms with equal batches keep them. All other values do not change.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.factor <= 1:
            raise UserError(f"--scale must be above 0 and at most 1, not {self.factor:g}; try --scale 0.00001")

    @property
    def root(self) -> float:
        return float(self.factor**0.25)

    def seeds(self, seeds: int) -> int:
        return seeds if self.factor == 1 else min(seeds, max(FEWEST_SEEDS, round(seeds * self.root)))

    def config(self, config: Config) -> Config:
        if self.factor == 1:
            return config
        group, envs = config.minibatches, config.env.num_envs
        envs, kept = (max(group, group * round(n * self.root / group)) for n in (envs, envs * config.keep))
        options = replace(config.bonus_options, keep=kept / envs)
        small = replace(config, env=replace(config.env, num_envs=envs), bonus_options=options)
        rollouts = max(1, math.ceil(config.frames * self.factor / small.frames_per_rollout))
        return replace(small, frames=rollouts * small.frames_per_rollout)

    def describe(self, experiment: Experiment) -> str | None:
        """The sizes of a scaled experiment, to be printed on its image; None at the paper's own size."""
        if self.factor == 1:
            return None
        small = [self.config(arm.config) for arm in experiment.arms]
        frames = sorted({c.frames for c in small})
        envs = sorted({c.env.num_envs for c in small})
        return (
            f"{' / '.join(map(count, frames))} frames per run (×{self.factor:g}), "
            f"{' / '.join(map(str, envs))} environments, {self.seeds(experiment.seeds)} of {experiment.seeds} seeds"
        )


def planned_runs(
    experiment: Experiment, scale: Scale, out: Path, *, only: Sequence[str] = (), seed: int | None = None
) -> list[PlannedRun]:
    """The runs of a figure, or of `only` some of its arms; seed by seed, so that a half-done figure shows every arm."""
    names = [arm.name for arm in experiment.arms]
    for name in only:
        if name not in names:
            raise UserError(f"{experiment.name} has no arm {name!r}; {nearest(name, names, count=len(names))}")
    seeds = range(1, scale.seeds(experiment.seeds) + 1)
    if seed is not None and seed not in seeds:
        have = f"seeds 1 to {seeds[-1]}" if len(seeds) > 1 else "only seed 1"
        raise UserError(f"{experiment.name} has {have}{' at this scale' * (scale.factor < 1)}, not {seed}")
    arms = [arm for arm in experiment.arms if not only or arm.name in only]
    found = []
    for s, arm in product(seeds if seed is None else (seed,), arms):
        config = replace(scale.config(arm.config), seed=s)
        game = game_of(config).lower().replace("/", "-").replace(":", "-")
        name = f"{game}-{config.bonus}-{config.policy}-{digest(config)}-s{s}"
        found.append(PlannedRun(arm.name, replace(config, out=str(out / "runs"), name=name)))
    return found
