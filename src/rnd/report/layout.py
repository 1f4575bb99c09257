"""The layout of a MiniGrid: the image that goes with a map of its cells."""

from __future__ import annotations

import io
from contextlib import closing
from functools import cache
from typing import NamedTuple

import numpy as np

from rnd.envs.factories import gym_factory
from rnd.foundation.errors import UserError

EPISODES = 4
"""Episodes that are compared to see whether the layout changes."""
TILE = 12
"""Pixels per cell of the image."""


class Layout(NamedTuple):
    """One episode's grid."""

    png: bytes
    columns: int
    rows: int
    changes: bool
    """Whether other episodes have other walls, doors or objects."""


@cache
def layout_of(env_id: str) -> Layout | None:
    """The layout of a registered MiniGrid; None where it cannot be made here."""
    if ":" in env_id:  # such a name imports a module, which reading a run folder must not
        return None
    try:
        with closing(gym_factory(env_id)()) as env:
            grids, images = [], []
            for seed in range(EPISODES):
                env.reset(seed=seed)
                grids.append(env.unwrapped.grid.encode()[..., 0])
                images.append(env.unwrapped.get_frame(highlight=False, tile_size=TILE))
    except (UserError, AttributeError):
        return None
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(images[0]).quantize(32).save(file, "PNG", optimize=True)
    columns, rows = grids[0].shape  # MiniGrid's arrays are [x, y]
    return Layout(file.getvalue(), columns, rows, any(not np.array_equal(grids[0], grid) for grid in grids[1:]))
