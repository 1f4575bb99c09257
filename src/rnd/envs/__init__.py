"""Environments stepped together. `make` builds those of a config. The import registers rnd's own with Gymnasium."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnd.envs import builtin

if TYPE_CHECKING:
    from rnd.config import Config
    from rnd.envs.interface import VectorEnv

builtin.register()


def make(config: Config) -> VectorEnv:
    """The environments of a run, not yet reset."""
    from rnd.envs.registry import make as build

    return build(config)
