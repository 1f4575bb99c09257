"""A batch that steps all environments at once, behind the trainer's interface."""

from __future__ import annotations

from rnd.envs.batch import Batch
from rnd.envs.interface import Buffers, VectorEnv
from rnd.envs.spec import Arrays


class BatchEnvs(VectorEnv):
    """One numpy environment of N rows, in this process."""

    def __init__(self, batch: Batch, num_envs: int, groups: int = 1):
        self.batch = batch
        super().__init__(batch.spec, num_envs, Buffers(batch.spec, num_envs), groups)

    def _reset(self) -> None:
        self.batch.reset(self.buffers.arrays)

    def _send(self, group: slice) -> None:
        self.batch.step(self.buffers.arrays, group)

    def _recv(self, group: slice) -> None:
        """`_send` has already done the step."""

    def _save(self) -> Arrays:
        return {name: array.copy() for name, array in self.batch.state.items()}

    def _load(self, state: Arrays) -> None:
        for name, array in self.batch.state.items():
            array[...] = state[name]
