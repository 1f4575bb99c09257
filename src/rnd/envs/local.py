"""Environments in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rnd.envs.interface import Buffers, VectorEnv
from rnd.envs.spec import Arrays, Cell


class LocalEnvs(VectorEnv):
    """Cells stepped in a loop: no processes, the simplest thing that can be debugged."""

    def __init__(self, make_cell: Callable[[int], Cell], num_envs: int):
        self.cells = [make_cell(i) for i in range(num_envs)]
        spec = self.cells[0].spec
        super().__init__(spec, num_envs, Buffers(spec, num_envs))

    def _reset(self) -> None:
        for i, cell in enumerate(self.cells):
            cell.reset(self.buffers.arrays, i)

    def _send(self, group: slice) -> None:
        for i in range(group.start, group.stop):
            self.cells[i].step(self.buffers.arrays, i)

    def _recv(self, group: slice) -> None:
        """`_send` has already done the step."""

    def _save(self) -> Arrays:
        return pack([cell.save() for cell in self.cells])

    def _load(self, state: Arrays) -> None:
        for i, data in enumerate(unpack(state)):
            self.cells[i].load(data, self.buffers.arrays, i)

    def close(self) -> None:
        for cell in self.cells:
            cell.close()
        self.cells = []


def pack(blobs: list[bytes]) -> Arrays:
    """Ragged byte strings as two plain arrays."""
    sizes = np.array([len(blob) for blob in blobs], np.int64)
    return {"bytes": np.frombuffer(b"".join(blobs), np.uint8).copy(), "sizes": sizes}


def unpack(state: Arrays) -> list[bytes]:
    ends = np.cumsum(state["sizes"])
    data = state["bytes"].tobytes()
    return [data[end - size : end] for end, size in zip(ends.tolist(), state["sizes"].tolist(), strict=True)]
