"""How long an experiment would take here: an estimate from frames a second that were measured on this machine."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnd.config import Config
from rnd.paper.plan import Cell
from rnd.paper.recipes import Recipe
from rnd.record.files import write_atomically
from rnd.report.runs import read_run

PROBE_ENVS = 16
PROBE_ROLLOUTS = 3


def frames_per_second(recipe: Recipe, cells: Sequence[Cell], out: Path) -> dict[str, tuple[float, str]]:
    """Policy to (frames a second, where the figure comes from) for every policy of a recipe."""
    return {policy: _of_policy(policy, cells, out) for policy in {arm.config.policy for arm in recipe.arms}}


def _of_policy(policy: str, cells: Sequence[Cell], out: Path) -> tuple[float, str]:
    own = [cell for cell in cells if cell.config.policy == policy]
    speeds = [read_run(cell.path).timing.get("frames_per_second", np.empty(0)) for cell in own if cell.path.is_dir()]
    known = np.concatenate([np.empty(0), *speeds])
    if len(known) > 1:
        return float(np.median(known)), "these runs"
    path = out / "speed.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    key = f"{platform.node()} {policy}"
    if key not in stored:
        stored[key] = probe(own[0].config)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(stored, indent=2) + "\n")
    return float(stored[key]), "a short trial"


def probe(config: Config) -> float:
    """Frames a second over a few rollouts with few environments; the first rollout warms up and does not count."""
    import torch

    from rnd import envs
    from rnd.train import Trainer

    few = config.env.num_envs if torch.cuda.is_available() else min(PROBE_ENVS, config.env.num_envs)
    small = replace(config, env=replace(config.env, num_envs=few), bonus="rnd")
    small = replace(small, frames=PROBE_ROLLOUTS * small.frames_per_rollout)
    with closing(envs.make(small)) as env:
        trainer = Trainer(small, env)
        trainer.collector.start()
        rows = trainer.train()
        next(rows)
        begun = time.monotonic()
        done = sum(1 for _ in rows)
    return done * small.frames_per_rollout / (time.monotonic() - begun)
