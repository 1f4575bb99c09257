"""Environments stepped together. `make` builds those of a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rnd.config import Config
    from rnd.envs.interface import VectorEnv


def make(config: Config) -> VectorEnv:
    """The environments of a run, not yet reset."""
    from rnd.envs.registry import make as build

    return build(config)
