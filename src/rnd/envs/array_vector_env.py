"""An `ArrayEnv` with the trainer's interface. Apart from `array_env.py`, because this imports torch."""

from __future__ import annotations

from rnd.envs.array_env import ArrayEnv
from rnd.envs.interface import Buffers, Rows, VectorEnv
from rnd.envs.spec import Arrays


class ArrayVectorEnv(VectorEnv):
    """An `ArrayEnv` of N rows, in this process."""

    def __init__(self, envs: ArrayEnv, num_envs: int, groups: int = 1):
        self.envs = envs
        super().__init__(envs.spec, num_envs, Buffers(envs.spec, num_envs), groups)

    def _reset(self) -> None:
        self.envs.reset(self.buffers.arrays)

    def _send(self, group: slice) -> None:
        self.envs.step(self.buffers.arrays, group)

    def _recv(self, group: slice) -> None:
        """`_send` has already done the step."""

    def _save(self) -> Arrays:
        return {name: array.copy() for name, array in self.envs.state.items()}

    def _load(self, state: Arrays) -> None:
        for name, array in self.envs.state.items():
            array[...] = state[name]

    def _state_layout(self) -> dict[str, Rows]:
        return dict.fromkeys(self.envs.state, "array")
