"""Frames per second on this machine, for an estimate of how long an experiment takes."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnd.config import Config
from rnd.foundation.files import read_errors, read_json, write_json
from rnd.jobs.planned import PlannedRun

PROBE_ENVS = 16
PROBE_ROLLOUTS = 3


def frames_per_second(runs: Sequence[PlannedRun], out: Path) -> dict[str, tuple[float, str]]:
    """Policy to (frames per second, source of that value) for every policy of the runs."""
    policies = dict.fromkeys(planned.config.policy for planned in runs)
    return {policy: _of_policy(policy, runs, out) for policy in policies}


def _of_policy(policy: str, runs: Sequence[PlannedRun], out: Path) -> tuple[float, str]:
    own = [planned for planned in runs if planned.config.policy == policy]
    known_runs = [run for planned in own if (run := planned.read())]
    known = np.concatenate([np.empty(0), *(run.timing.get("frames_per_second", ()) for run in known_runs)])
    if len(known) > 1:
        return float(np.median(known)), "these runs"
    path = out / "speed.json"
    key = f"{platform.node()} {policy}"
    with read_errors(path, "a table of speeds; delete it"):
        stored = read_json(path) if path.exists() else {}
        known_speed = float(stored.get(key, 0))
    if not known_speed:
        stored[key] = probe(own[0].config)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, stored)
    return float(stored[key]), "a short trial"


def probe(config: Config) -> float:
    """Frames per second over a few rollouts with few environments; the first rollout is a warm-up."""
    import torch

    from rnd import envs
    from rnd.training.trainer import Trainer

    few = config.env.num_envs if torch.cuda.is_available() else min(PROBE_ENVS, config.env.num_envs)
    small = replace(config, env=replace(config.env, num_envs=few), bonus="rnd")
    small = replace(small, frames=PROBE_ROLLOUTS * small.frames_per_rollout)
    with closing(envs.make(small)) as env:
        trainer = Trainer(small, env)
        trainer.start()
        rows = trainer.train()
        next(rows)
        begun = time.monotonic()
        done = sum(1 for _ in rows)
    return done * small.frames_per_rollout / (time.monotonic() - begun)
