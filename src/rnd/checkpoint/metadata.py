"""The description of a run in a checkpoint or an exported agent, and whether it fits another run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from rnd import __version__
from rnd.bonus import make_bonus
from rnd.checkpoint.folder import FILES, PACKAGES, package_version
from rnd.config import Config
from rnd.config.components import BONUSES, POLICIES
from rnd.distributed import Ranks
from rnd.envs.interface import VectorEnv
from rnd.envs.spec import ActionSpec, EnvSpec, ObservationSpec
from rnd.foundation.errors import UserError
from rnd.foundation.files import digest
from rnd.metrics.metrics import Row, read_csv
from rnd.models.policy import make_policy


class Saveable(Protocol):
    """The attributes of a trainer that this module reads."""

    config: Config
    env: VectorEnv
    device: torch.device
    ranks: Ranks
    iteration: int

    @property
    def frames(self) -> int: ...

    def state_dict(self) -> dict[str, Any]: ...


def describe(trainer: Saveable, row: Row, folder: Path) -> dict[str, Any]:
    """Plain JSON: config, specs, counters, sizes and hashes of files, and versions."""
    tables = {name: digest(path) if (path := folder / name).exists() else (0, None) for name in FILES}
    return {
        "iteration": trainer.iteration,
        "frames": trainer.frames,
        "score": row.get("return_mean"),
        "row": row,
        "config": trainer.config.to_dict(),
        "spec": spec_to_dict(trainer.env.spec),
        "device": trainer.device.type,
        "sizes": {name: size for name, (size, _) in tables.items()},
        "hashes": {name: sha256 for name, (_, sha256) in tables.items()},
        "versions": {"rnd": __version__, **{name: package_version(name) for name in PACKAGES}},
    }


KINDS = {
    "iteration": int,
    "frames": int,
    "row": dict,
    "config": dict,
    "spec": dict,
    "device": str,
    "sizes": dict,
    "versions": dict,
}


def check_types(metadata: dict[str, Any]) -> None:
    """Refuse a description that `describe` did not write, before any of it is used."""
    for name, kind in KINDS.items():
        if type(metadata[name]) is not kind:
            raise TypeError(f"{name} is {metadata[name]!r:.80}")
    if not all(
        value is None or isinstance(value, int | float) for value in (*metadata["row"].values(), metadata["score"])
    ):
        raise TypeError("row and score hold numbers")
    if not all(type(metadata["sizes"][name]) is int and metadata["sizes"][name] >= 0 for name in FILES):
        raise TypeError("sizes hold numbers of bytes")
    if type(metadata.get("hashes", {})) is not dict:
        raise TypeError("hashes are by file")
    spec_from_dict(Config.from_dict(metadata["config"]).env.id, metadata["spec"])


def check_number(state: dict[str, Any], config: Config) -> None:
    """Refuse a state of another number of environments, before those are made."""
    saved = sum(len(part["env"]["returns"]) for part in (state, *state.get("other_ranks", [])))
    if saved != config.all_envs:
        raise UserError(f"this checkpoint belongs to another run: {saved} environments instead of {config.all_envs}")


def shape_mismatch(
    config: Config, spec: EnvSpec, state: dict[str, Any], parts: tuple[str, ...] = ("policy", "bonus")
) -> str | None:
    """How the saved networks differ from those that the config describes, or None. Takes no memory for them: a small
    file can describe networks that are larger than any machine. The user's own classes are not looked at."""
    made: dict[str, nn.Module] = {}
    with torch.device("meta"):
        if "policy" in parts and POLICIES.imported(config.policy):
            made["policy"] = make_policy(config, spec)
        if "bonus" in parts and BONUSES.imported(config.bonus):
            made["bonus"] = make_bonus(config, spec)
    for part, module in made.items():
        saved, wanted = state.get(part, {}), module.state_dict()
        if missing := wanted.keys() - saved.keys():  # those of the normaliser too: nothing is left at a default
            return f"lacks the state of {part}: {', '.join(sorted(missing))}"
        for key, tensor in wanted.items():
            if saved[key].shape != tensor.shape:
                sizes = f"{tuple(saved[key].shape)} instead of {tuple(tensor.shape)}"
                return f"does not fit the {part} that its config describes: {key} is {sizes}"
    return None


def damaged_files(metadata: dict[str, Any] | None, folder: Path) -> dict[str, str]:
    """Name to what is wrong with it, of the files that a run appends to. `metadata` is that of the checkpoint to
    continue from; without one the run begins again, and rows that are there are of another beginning."""
    found = {}
    for name in FILES:
        path, size = folder / name, metadata["sizes"][name] if metadata else 0
        there = path.stat().st_size if path.exists() else None
        if metadata is None:
            if there:
                found[name] = "it has rows, but there is no checkpoint"
        elif there is None:
            if size:
                found[name] = "it is missing"
        elif there < size:
            found[name] = f"it is cut off: {there:,} bytes instead of {size:,}"
        elif (metadata.get("hashes") or {}).get(name) not in (None, digest(path, size)[1]) and size:
            found[name] = "it was altered: its hash differs"
        else:
            try:
                read_csv(path)
            except (OSError, ValueError) as error:
                found[name] = f"it is no table: {error}"
    return found


def check_fits(metadata: dict[str, Any], config: Config, spec: EnvSpec) -> None:
    """Refuse a checkpoint of another game, network or size. Called before anything of it is loaded."""
    saved, here = identity(Config.from_dict(metadata["config"]), metadata["spec"]), identity(config, spec_to_dict(spec))
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
    observation, action = spec.observation, spec.action
    images = {"images": observation.images} if observation.kind == "mixed" else {}
    return {
        "observation": {"kind": observation.kind, "shape": list(observation.shape)} | images,
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
    images = [observation["images"]] if observation["kind"] == "mixed" else []
    for size in (*observation["shape"], *images, *action["sizes"]):
        if type(size) is not int or not 0 < size < 2**31:
            raise ValueError(f"{size!r:.80} is no size")
    found = ObservationSpec(observation["kind"], tuple(observation["shape"]), images=sum(images))
    if images and found.shape != (found.pixels + 4 * found.vector_size,):
        raise ValueError(f"{found.images} images do not fit into {found.shape}")
    low = tuple(-math.inf if x is None else float(x) for x in action["low"])
    high = tuple(math.inf if x is None else float(x) for x in action["high"])
    return EnvSpec(
        env_id,
        found,
        ActionSpec(action["kind"], tuple(action["sizes"]), low, high),
    )
