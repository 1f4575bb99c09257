"""One Atari game through ale-py, preprocessed as in the paper.

ale-py's own sticky actions are off: its saved state omits the previous action, so a restored run would diverge.
Stickiness is drawn for every raw frame from a generator that belongs to the environment and is saved with it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from rnd.envs import native
from rnd.envs.spec import SCREEN, ActionSpec, Arrays, Env, EnvSpec, ObservationSpec
from rnd.envs.splitmix import SplitMix64
from rnd.foundation.errors import RunError, UserError

NATIVE_SCREEN = (210, 160)
"""Rows and columns of most games' screens, the only ones that the native core shrinks. Others have up to 250 rows."""

ROOM_BYTES: dict[str, tuple[int, int | None]] = {"montezuma_revenge": (3, 57), "pitfall": (1, None)}
"""RAM addresses of the room number, and of the level number in games whose levels have the same rooms."""


class AleEnv(Env):
    """ale-py with frame skip, maximum of the last two frames, grey, 84x84."""

    def __init__(
        self,
        rom: str,
        env_id: str,
        seed: int,
        *,
        frame_skip: int,
        sticky: float,
        max_episode_frames: int,
        time_limits: bool = False,
    ) -> None:
        self.ale = ale_interface(rom)
        self.actions = minimal_actions(self.ale)
        self.rom, self.frame_skip, self.sticky, self.max_frames = rom, frame_skip, sticky, max_episode_frames
        self.random = SplitMix64(seed)
        self.executed = 0
        self.frames = 0
        rows, columns = self.ale.getScreenDims()
        self._last, self._last_but_one, self._seen = np.zeros((3, rows, columns), np.uint8)
        self._shrinks = native.available() and (rows, columns) == NATIVE_SCREEN
        self.spec = replace(atari_spec(rom, env_id, len(self.actions), frame_skip, "ale-py"), time_limits=time_limits)

    def reset(self, out: Arrays, i: int) -> None:
        self.ale.reset_game()  # not always the same start: Solaris draws from a timer that is noise at power-on
        self.executed = 0  # NOOP: stickiness does not reach over the end of an episode
        self.frames = 0
        self.ale.getScreenGrayscale(self._last)
        self._last_but_one.fill(0)
        self._write_observation(out, i)

    def step(self, out: Arrays, i: int) -> None:
        ale, wanted, executed, reward = self.ale, self.actions[out["action"][i]], self.executed, 0
        uniform, sticky, left = self.random.uniform, self.sticky, self.max_frames - self.frames
        game_over = truncated = False
        for remaining in range(self.frame_skip - 1, -1, -1):
            if uniform() >= sticky:
                executed = wanted
            reward += ale.act(executed)
            left -= 1
            if ale.game_over(with_truncation=False):
                game_over = True
                break
            if left <= 0:
                truncated = True
                break
            if remaining == 1:
                ale.getScreenGrayscale(self._last_but_one)
            elif remaining == 0:
                ale.getScreenGrayscale(self._last)
        self.executed, self.frames = executed, self.max_frames - left
        out["reward"][i] = reward
        out["terminated"][i] = game_over
        out["truncated"][i] = truncated
        if truncated and self.spec.time_limits:
            ale.getScreenGrayscale(self._last)
            if remaining > 0:  # truncated in the middle of an agent step: there is only one new frame
                self._last_but_one.fill(0)
            self._draw(out["final_obs"][i])
        if game_over or truncated:
            self._write_room(out, i, "final_room")
            self.reset(out, i)
        else:
            self._write_observation(out, i)

    def save(self) -> bytes:
        header = {"rom": self.rom, "random": self.random.state, "executed": self.executed, "frames": self.frames}
        return json.dumps(header).encode() + b"\n" + bytes(self.ale.cloneState(include_rng=True).serialize())

    def load(self, data: bytes, out: Arrays, i: int) -> bool:
        from ale_py import ALEState

        line, raw = data.split(b"\n", 1)
        header = json.loads(line)
        if header["rom"] != self.rom:
            raise UserError(f"the saved state is of {header['rom']}, not of {self.rom}; resume with that game")
        self.random = SplitMix64(int(header["random"]))
        self.executed, self.frames = int(header["executed"]), int(header["frames"])
        if self.executed not in (0, *self.actions) or self.frames < 0:
            raise RunError(f"a damaged state, with action {self.executed} at frame {self.frames}")
        self.ale.restoreState(ALEState(raw))
        return True

    def _write_observation(self, out: Arrays, i: int) -> None:
        self._draw(out["obs"][i])
        out["lives"][i] = self.ale.lives()
        self._write_room(out, i, "room")

    def _write_room(self, out: Arrays, i: int, name: str) -> None:
        if self.spec.has_rooms:
            out[name][i] = room_number(self.rom, self.ale.getRAM())

    def _draw(self, image: np.ndarray) -> None:
        if self._shrinks:  # the same bytes in a tenth of the time
            native.shrink(self._last, self._last_but_one, image)
            return
        np.maximum(self._last, self._last_but_one, out=self._seen)
        cv2.resize(self._seen, (SCREEN, SCREEN), dst=image, interpolation=cv2.INTER_AREA)


def room_number(rom: str, ram: np.ndarray) -> Any:
    """level * 256 + room, read from RAM contents [..., 128]."""
    room, level = ROOM_BYTES[rom]
    number = ram[..., room].astype(np.int32)
    return number if level is None else number + 256 * ram[..., level].astype(np.int32)


def atari_spec(rom: str, env_id: str, actions: int, frame_skip: int, backend: str) -> EnvSpec:
    """What every Atari backend returns as its spec."""
    observation, action = ObservationSpec("image", (SCREEN, SCREEN)), ActionSpec("discrete", (actions,))
    return EnvSpec(env_id, observation, action, frame_skip, has_rooms=rom in ROOM_BYTES, backend=backend)


def minimal_actions(ale: Any) -> list[int]:
    """The raw actions of a game, in the order of the agent's actions."""
    return [int(getattr(action, "value", action)) for action in ale.getMinimalActionSet()]


def ale_interface(rom: str) -> Any:
    """ale-py with a game loaded, without sticky actions and log lines."""
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", 0)
    ale.loadROM(roms.get_rom_path(rom))
    return ale
