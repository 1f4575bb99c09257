"""Checkpoints of rnd 0.1 (format 1): the same state under other names."""

from __future__ import annotations

from typing import Any

STATE_NAMES = {"moves": "transitions", "env.cells": "env.envs", "env.place": "env.position"}
"""Keys of the state: of a waiting rollout, of environments that save themselves, and of NoisyTV."""


def from_format1(document: dict[str, Any]) -> dict[str, Any]:
    """The content of a format 1 `state.json` as format 2 names it."""
    return {"metadata": document["about"], "state": renamed(document["state"])}


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {STATE_NAMES.get(key, key): renamed(item) for key, item in value.items()}
    return [renamed(item) for item in value] if isinstance(value, list) else value
