"""Environments in this process: a loop over single ones, or numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rnd.envs.array_env import ArrayEnv
from rnd.envs.interface import Buffers, Rows, VectorEnv
from rnd.envs.process_io import FAULTS, describe_error, environment_error, pack_bytes, unpack_bytes
from rnd.envs.spec import Arrays, Env, check_repeats


class LocalEnvs(VectorEnv):
    """Environments stepped in a loop: no processes, the simplest backend to debug."""

    def __init__(self, make_env: Callable[[int], Env], num_envs: int):
        self.envs = [make_env(i) for i in range(num_envs)]
        spec = self.envs[0].spec
        super().__init__(spec, num_envs, Buffers(spec, num_envs))

    def _reset(self) -> None:
        self._each(slice(0, self.num_envs), lambda env, i: env.reset(self.buffers.arrays, i))

    def _send(self, group: slice) -> None:
        self._each(group, lambda env, i: env.step(self.buffers.arrays, i))

    def _save(self) -> Arrays:
        return {"envs": np.frombuffer(pack_bytes([env.save() for env in self.envs]), np.uint8)}

    def _load(self, state: Arrays) -> None:
        saved = unpack_bytes(state["envs"].tobytes())
        exact = self._each(slice(0, self.num_envs), lambda env, i: env.load(saved[i], self.buffers.arrays, i))
        self.restarted = {i for i, loaded in enumerate(exact) if not loaded}

    def _repeats(self) -> bool:
        return check_repeats(self.envs)

    def _state_layout(self) -> dict[str, Rows]:
        return {"envs": "packed"}

    def _each(self, rows: slice, do: Callable[[Env, int], Any]) -> list[Any]:
        i, results = rows.start, []
        try:
            for i in range(rows.start, rows.stop):
                results.append(do(self.envs[i], i))
        except FAULTS as error:
            raise environment_error(f"environment {i}", *describe_error(error)) from error
        return results

    def close(self) -> None:
        for env in self.envs:
            env.close()
        self.envs = []


class ArrayVectorEnv(VectorEnv):
    """An `ArrayEnv` of N rows, in this process."""

    def __init__(self, envs: ArrayEnv, num_envs: int, groups: int = 1):
        self.envs = envs
        super().__init__(envs.spec, num_envs, Buffers(envs.spec, num_envs), groups)

    def _reset(self) -> None:
        self.envs.reset(self.buffers.arrays)

    def _send(self, group: slice) -> None:
        self.envs.step(self.buffers.arrays, group)

    def _save(self) -> Arrays:
        return {name: array.copy() for name, array in self.envs.state.items()}

    def _load(self, state: Arrays) -> None:
        for name, array in self.envs.state.items():
            array[...] = state[name]

    def _state_layout(self) -> dict[str, Rows]:
        return dict.fromkeys(self.envs.state, "array")
