"""Environments in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rnd.envs.blobs import join, split
from rnd.envs.failures import describe, environment_error
from rnd.envs.interface import Buffers, VectorEnv
from rnd.envs.spec import Arrays, Cell
from rnd.errors import UserError


class LocalEnvs(VectorEnv):
    """Cells stepped in a loop: no processes, the simplest thing that can be debugged."""

    def __init__(self, make_cell: Callable[[int], Cell], num_envs: int, groups: int = 1):
        self.cells = [make_cell(i) for i in range(num_envs)]
        spec = self.cells[0].spec
        super().__init__(spec, num_envs, Buffers(spec, num_envs), groups)

    def _reset(self) -> None:
        self._each(slice(0, self.num_envs), lambda cell, i: cell.reset(self.buffers.arrays, i))

    def _send(self, group: slice) -> None:
        self._each(group, lambda cell, i: cell.step(self.buffers.arrays, i))

    def _recv(self, group: slice) -> None:
        """`_send` has already done the step."""

    def _save(self) -> Arrays:
        return {"cells": np.frombuffer(join([cell.save() for cell in self.cells]), np.uint8)}

    def _load(self, state: Arrays) -> None:
        blobs = saved_cells(state)
        self._each(slice(0, self.num_envs), lambda cell, i: cell.load(blobs[i], self.buffers.arrays, i))

    def _each(self, rows: slice, do: Callable[[Cell, int], Any]) -> None:
        i = rows.start
        try:
            for i in range(rows.start, rows.stop):
                do(self.cells[i], i)
        except Exception as error:
            raise environment_error(i, *describe(error)) from error

    def close(self) -> None:
        for cell in self.cells:
            cell.close()
        self.cells = []


def saved_cells(state: Arrays) -> list[bytes]:
    """The cells' states, one an environment."""
    if "cells" not in state:
        raise UserError("the environments were saved by another backend; resume with --env.backend native")
    return split(state["cells"].tobytes())
