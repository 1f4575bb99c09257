"""The file of a bonus: all of its state, its config and its spaces, in one safetensors file. Reading one runs no code
from it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from rnd.checkpoint import trust
from rnd.checkpoint.checkpoint import pack, unpack
from rnd.checkpoint.export import read_tensors, write_tensors
from rnd.config import Config, EnvConfig
from rnd.envs.spaces import space_from_dict, space_to_dict
from rnd.foundation.files import read_errors
from rnd.plugins.guards import check_sizes

FORMAT, CARD = 1, "rnd.bonus"
WHAT = "a bonus saved by rnd"


class SavedBonus(NamedTuple):
    """What a bonus is made from again."""

    config: Config
    observation_space: Any
    action_space: Any
    update_every: int | None
    notes: dict[str, Any]
    state: dict[str, Any]


def write_bonus(path: Path, saved: SavedBonus) -> None:
    """Write everything, atomically."""
    tensors: dict[str, Tensor] = {}
    metadata = {
        "format": FORMAT,
        "config": saved.config.to_dict(),
        "update_every": saved.update_every,
        "notes": saved.notes,
        "observation_space": pack(space_to_dict(saved.observation_space), "observation_space", tensors),
        "action_space": pack(space_to_dict(saved.action_space), "action_space", tensors),
        "state": pack(saved.state, "state", tensors),
    }
    write_tensors(path, tensors, CARD, metadata)


@contextmanager
def read_bonus(path: Path, num_envs: int | None, trusted: bool) -> Iterator[SavedBonus]:
    """What a file holds, for `num_envs` environments instead of those that it had. What fails inside, because the file
    does not fit what it describes, is said of the file."""
    with read_errors(path, WHAT):
        card, tensors = read_tensors(path, CARD, WHAT, FORMAT)
        plain_config, state = card["config"], unpack(card["state"], tensors)
        # those of rnd 0.2 and before have read the first image alone
        config = Config.from_dict(plain_config | {"env": {"reads": "image"} | plain_config["env"]})
        trust.check(dataclasses.replace(config, env=EnvConfig()), path, trusted)
        plain = {name: unpack(card[name], tensors) for name in ("observation_space", "action_space")}
        check_sizes(config, state, plain["observation_space"])
        spaces = {name: space_from_dict(data) for name, data in plain.items()}
        env = dataclasses.replace(config.env, num_envs=num_envs or config.env.num_envs)
        config = dataclasses.replace(config, env=env, minibatches=math.gcd(env.num_envs, config.minibatches))
        rest = {"update_every": card["update_every"], "notes": dict(card["notes"]), "state": state}
        yield SavedBonus(config, **spaces, **rest)
