"""One Atari game through ale-py, preprocessed as in the paper.

ale-py's own sticky actions are off: its saved state omits the previous action, so a restored run would diverge.
We draw stickiness for every raw frame from our own generator, and save that generator.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from rnd.envs.observations import SCREEN
from rnd.envs.spec import ActionSpec, Arrays, Cell, EnvSpec, ObservationSpec
from rnd.envs.splitmix import SplitMix64

RAW_SCREEN = (210, 160)

ROOM_BYTES: dict[str, tuple[int, int | None]] = {"montezuma_revenge": (3, 57), "pitfall": (1, None)}
"""RAM addresses of the room number, and of the level number where rooms repeat a level."""


class AleCell(Cell):
    """ale-py with frame skip, maximum of the last two frames, grey, 84x84."""

    def __init__(
        self, rom: str, env_id: str, seed: int, *, frame_skip: int, sticky: float, max_episode_frames: int
    ) -> None:
        self.ale = _interface(rom)
        self.actions = [int(action.value) for action in self.ale.getMinimalActionSet()]
        self.rom, self.frame_skip, self.sticky, self.max_frames = rom, frame_skip, sticky, max_episode_frames
        self.random = SplitMix64(seed)
        self.executed = 0
        self.frames = 0
        self._last_two = np.zeros((2, *RAW_SCREEN), np.uint8)
        self.spec = EnvSpec(
            id=env_id,
            observation=ObservationSpec("image", (SCREEN, SCREEN)),
            action=ActionSpec("discrete", (len(self.actions),)),
            frame_skip=frame_skip,
            has_rooms=rom in ROOM_BYTES,
            backend="ale-py",
        )

    def reset(self, out: Arrays, i: int) -> None:
        self.ale.reset_game()
        self.executed = 0  # NOOP: the sticky memory does not outlive the episode
        self.frames = 0
        self.ale.getScreenGrayscale(self._last_two[0])
        self._last_two[1] = 0
        self._write(out, i)

    def step(self, out: Arrays, i: int) -> None:
        wanted = self.actions[int(out["action"][i])]
        reward = 0.0
        game_over = truncated = False
        for frame in range(self.frame_skip):
            if self.random.uniform() >= self.sticky:
                self.executed = wanted
            reward += self.ale.act(self.executed)
            self.frames += 1
            game_over = self.ale.game_over(with_truncation=False)
            truncated = not game_over and self.frames >= self.max_frames
            if game_over or truncated:
                break
            remaining = self.frame_skip - 1 - frame
            if remaining < 2:
                self.ale.getScreenGrayscale(self._last_two[remaining])
        out["reward"][i] = reward
        out["terminated"][i] = game_over
        out["truncated"][i] = truncated
        if game_over or truncated:
            self.reset(out, i)
        else:
            self._write(out, i)

    def save(self) -> bytes:
        header = {"rom": self.rom, "random": self.random.state, "executed": self.executed, "frames": self.frames}
        return json.dumps(header).encode() + b"\n" + bytes(self.ale.cloneState(include_rng=True).serialize())

    def load(self, data: bytes, out: Arrays, i: int) -> None:
        from ale_py import ALEState

        line, raw = data.split(b"\n", 1)
        header = json.loads(line)
        self.random = SplitMix64(int(header["random"]))
        self.executed, self.frames = int(header["executed"]), int(header["frames"])
        self.ale.restoreState(ALEState(raw))

    def _write(self, out: Arrays, i: int) -> None:
        import cv2

        cv2.resize(self._last_two.max(axis=0), (SCREEN, SCREEN), dst=out["obs"][i], interpolation=cv2.INTER_AREA)
        out["lives"][i] = self.ale.lives()
        if self.rom in ROOM_BYTES:
            out["room"][i] = place(self.rom, self.ale.getRAM())


def place(rom: str, ram: np.ndarray) -> Any:
    """level * 256 + room of RAM contents [..., 128]."""
    room, level = ROOM_BYTES[rom]
    number = ram[..., room].astype(np.int32)
    return number if level is None else number + 256 * ram[..., level].astype(np.int32)


def _interface(rom: str) -> Any:
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)  # no banner
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", 0)
    ale.loadROM(roms.get_rom_path(rom))
    return ale
