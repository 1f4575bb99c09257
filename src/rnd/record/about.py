"""The description of a run in a checkpoint or an exported agent, and whether it fits another run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

import torch

from rnd import __version__
from rnd.config import Config
from rnd.distributed import Ranks
from rnd.envs.interface import VectorEnv
from rnd.envs.spec import ActionSpec, EnvSpec, ObservationSpec
from rnd.errors import UserError
from rnd.record.folder import PACKAGES, package_version
from rnd.record.metrics import Row

FILES = ("metrics.csv", "timing.csv")
"""Files that grow with the run: a checkpoint records their sizes, and resuming cuts them back."""


class Saveable(Protocol):
    """What this module needs of a trainer."""

    config: Config
    env: VectorEnv
    device: torch.device
    ranks: Ranks
    iteration: int

    @property
    def frames(self) -> int: ...

    def state_dict(self) -> dict[str, Any]: ...


def describe(trainer: Saveable, row: Row, folder: Path) -> dict[str, Any]:
    """Plain JSON: config, specs, counters, file sizes and versions."""
    return {
        "iteration": trainer.iteration,
        "frames": trainer.frames,
        "score": row.get("return_mean"),
        "row": row,
        "config": trainer.config.to_dict(),
        "spec": spec_to_dict(trainer.env.spec),
        "device": trainer.device.type,
        "sizes": {name: path.stat().st_size if (path := folder / name).exists() else 0 for name in FILES},
        "versions": {"rnd": __version__, **{name: package_version(name) for name in PACKAGES}},
    }


def check_fits(about: dict[str, Any], config: Config, spec: EnvSpec) -> None:
    """Refuse a checkpoint of another game, network or size. Called before anything of it is loaded."""
    saved, here = identity(Config.from_dict(about["config"]), about["spec"]), identity(config, spec_to_dict(spec))
    names = config.state_names() | {"observation": "observation", "actions": "actions"}
    wrong = [
        f"{title} {saved[name]} instead of {here[name]}"
        for name, title in names.items()
        if name in saved and saved[name] != here[name]
    ]
    if wrong:
        raise UserError(f"this checkpoint belongs to another run: {'; '.join(wrong)}")


def identity(config: Config, spec: dict[str, Any]) -> dict[str, Any]:
    """What decides whether a state fits a run: config fields by their dotted names, and the specs."""
    return config.flat() | {
        "env.num_envs": config.all_envs,
        "observation": f"{spec['observation']['kind']} {spec['observation']['shape']}",
        "actions": f"{spec['action']['kind']} {spec['action']['sizes']}",
    }


def spec_to_dict(spec: EnvSpec) -> dict[str, Any]:
    """The shapes that networks are built from; bounds that are infinite are null, as JSON has no infinity."""
    action = spec.action
    return {
        "observation": {"kind": spec.observation.kind, "shape": list(spec.observation.shape)},
        "action": {
            "kind": action.kind,
            "sizes": list(action.sizes),
            "low": [x if math.isfinite(x) else None for x in action.low],
            "high": [x if math.isfinite(x) else None for x in action.high],
        },
    }


def spec_from_dict(env_id: str, data: dict[str, Any]) -> EnvSpec:
    """The inverse of `spec_to_dict`, as far as networks need it."""
    observation, action = data["observation"], data["action"]
    low = tuple(-math.inf if x is None else float(x) for x in action["low"])
    high = tuple(math.inf if x is None else float(x) for x in action["high"])
    return EnvSpec(
        env_id,
        ObservationSpec(observation["kind"], tuple(observation["shape"])),
        ActionSpec(action["kind"], tuple(action["sizes"]), low, high),
    )
