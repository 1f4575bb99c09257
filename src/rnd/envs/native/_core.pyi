from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Flags: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.bool_]
_Actions: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float32]
_Ints: TypeAlias = npt.NDArray[np.int32]

sources: str
simd: str

def known_games() -> tuple[str, ...]: ...
def record_reached(rom: bytes, game: str, frames: int, seed: int) -> bytes: ...
def scheme(game: str) -> str: ...
def shrink(newest: _Bytes, other: _Bytes, frame: _Bytes) -> None: ...

class AtariBatch:
    def __init__(
        self,
        rom: bytes,
        game: str,
        seeds: npt.NDArray[np.uint64],
        *,
        threads: int,
        frame_skip: int = 4,
        sticky: float = 0.25,
        max_episode_frames: int = 18_000,
        full_action_set: bool = False,
        simd: str = "auto",
        autoreset: bool = True,
    ) -> None: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def num_actions(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def simd(self) -> str: ...
    def translate(self, path: str) -> None: ...
    def reset(self, frames: _Bytes, ram: _Bytes, lives: _Ints, first: int = 0, count: int | None = None) -> None: ...
    def step(
        self,
        actions: _Actions,
        frames: _Bytes,
        rewards: _Floats,
        terminated: _Flags,
        truncated: _Flags,
        ram: _Bytes,
        lives: _Ints,
        final_ram: _Bytes,
        first: int = 0,
        count: int | None = None,
    ) -> None: ...
    def step_async(
        self,
        actions: _Actions,
        frames: _Bytes,
        rewards: _Floats,
        terminated: _Flags,
        truncated: _Flags,
        ram: _Bytes,
        lives: _Ints,
        final_ram: _Bytes,
        first: int = 0,
        count: int | None = None,
    ) -> None: ...
    def play(
        self,
        actions: npt.NDArray[np.int64],
        frames: _Bytes,
        rewards: _Floats,
        terminated: _Flags,
        truncated: _Flags,
        ram: _Bytes,
        lives: _Ints,
        final_ram: _Bytes,
    ) -> None: ...
    def wait(self, first: int = -1, spin: bool = False) -> None: ...
    def screen(self, i: int) -> _Bytes: ...
    def ram(self, i: int) -> _Bytes: ...
    def lives(self, i: int) -> int: ...
    def game_over(self, i: int) -> bool: ...
    def save(self, i: int) -> bytes: ...
    def load(self, i: int, data: bytes) -> None: ...
    def set_ram(self, i: int, address: int, value: int) -> None: ...
    def raw_act(self, i: int, ale_action: int) -> float: ...
    def raw_reset(self, i: int) -> None: ...
