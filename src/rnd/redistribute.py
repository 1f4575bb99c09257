"""The parts of a run that belong to one rank, dealt to another number of ranks.

A part holds the rows of a rank's environments: their own states, what the collector knows of them, the running sums of
the return scaler. The rows of all parts together are those of all environments in order, so dealing means to lay them
side by side and to cut again. Random generators cannot be cut: they are left out, and start anew.

Legend: N environments of a rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnd.envs.process_io import pack_bytes, unpack_bytes

State = dict[str, Any]

BLOBS = ("env.cells", "env.native")
"""Arrays of environments' states that hold byte strings of different lengths, one an environment."""
HISTORY = "history"
"""The collector's tensor whose second axis is N; that of all others is the first."""


def deal(parts: list[State], world: int) -> list[State]:
    """The parts of `world` ranks, to the bit where their number is the same."""
    if len(parts) == world:
        return parts
    total = sum(len(part["scaler"]["carry_N"]) for part in parts)
    size = total // world
    environments = [_env_rows(part["env"]) for part in parts]
    joined_env = {name: [row for rows in environments for row in rows[name]] for name in environments[0]}
    collectors = [_inner(part["collector"]) for part in parts]
    carry = torch.cat([part["scaler"]["carry_N"] for part in parts])
    dealt = []
    for start in range(0, total, size):
        rows = slice(start, start + size)
        dealt.append(
            {
                "scaler": parts[0]["scaler"] | {"carry_N": carry[rows].clone()},
                "collector": {name: _cut([c[name] for c in collectors], name, rows) for name in collectors[0]},
                "env": _env_state({name: found[rows] for name, found in joined_env.items()}),
                "generators": None,
            }
        )
    return dealt


def _inner(collector: State) -> dict[str, Tensor]:
    """With --overlap, a rollout that waits to be learned from belongs to the old ranks and is dropped."""
    inner: dict[str, Tensor] = collector.get("inner", collector)
    return inner


def _cut(tensors: list[Tensor], name: str, rows: slice) -> Tensor:
    return torch.cat(tensors, 1)[:, rows].clone() if name == HISTORY else torch.cat(tensors)[rows].clone()


def _env_rows(state: dict[str, np.ndarray]) -> dict[str, list[Any]]:
    """The saved environments one by one."""
    count = len(state["returns"])
    rows: dict[str, list[Any]] = {}
    for name, array in state.items():
        if name in BLOBS:
            rows[name] = unpack_bytes(array.tobytes())
        elif name == "rooms":
            rows[name] = np.split(array, np.cumsum(state["rooms_count"])[:-1])
        elif array.ndim == 0:  # one number for all of them
            rows[name] = [array] * count
        else:
            rows[name] = list(array)
    return rows


def _env_state(rows: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    """The inverse of `_env_rows`."""
    state = {}
    for name, found in rows.items():
        if name in BLOBS:
            state[name] = np.frombuffer(pack_bytes(found), np.uint8)
        elif name == "rooms":
            state[name] = np.concatenate(found)
        elif name == "env.loads":
            state[name] = np.array(max(int(value) for value in found))
        else:
            state[name] = np.stack(found)
    return state
