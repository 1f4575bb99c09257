"""Atari through the native core: threads inside one call, no processes, the same bytes as ale-py.

Legend: N environments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rnd.config import Config
from rnd.envs import native
from rnd.envs.ale_env import atari_spec, room_number
from rnd.envs.factories import rom_of
from rnd.envs.interface import Buffers, Rows, VectorEnv
from rnd.envs.native.roms import read_rom
from rnd.envs.process_io import pack_bytes, unpack_bytes
from rnd.envs.spec import Arrays
from rnd.envs.splitmix import environment_seed

if TYPE_CHECKING:
    from rnd.envs.native.translation import BackgroundTranslation

GROUPS = 2
LONG_RUN = 10_000_000
"""Frames of a run for which compiling the game pays: about 20 s of one core."""


def unsupported_reason(config: Config) -> str | None:
    """The reason why the native core cannot run this config, or None where it can."""
    if not native.available():
        return str(native.why_unavailable())
    if rom_of(config.env.id) not in native.supported_games():
        return "this game is not proven exact"
    if config.bootstrap_truncated:
        return "it does not return final observations, which --bootstrap-truncated needs"
    return None


class NativeEnvs(VectorEnv):
    """All environments in one native batch. `spin`: wait by polling, for where the threads leave a core free."""

    def __init__(self, config: Config, threads: int, spin: bool = False):
        env, self.rom = config.env, rom_of(config.env.id)
        rom = read_rom(self.rom)
        self.batch = native.AtariBatch(
            rom,
            self.rom,
            np.array([environment_seed(config.seed, env.first + i) for i in range(env.num_envs)], np.uint64),
            threads=threads,
            frame_skip=env.frame_skip,
            sticky=env.sticky,
            max_episode_frames=env.max_episode_frames,
        )
        self.translation: BackgroundTranslation | None = None
        remark = self._translate(rom, config.frames >= LONG_RUN) if env.translate else ""
        backend = f"native core, {threads} thread{'s' if threads > 1 else ''}{remark}"
        spec = atari_spec(self.rom, env.id, self.batch.num_actions, env.frame_skip, backend)
        super().__init__(spec, env.num_envs, Buffers(spec, env.num_envs), GROUPS)
        self.ram, self.final_ram = np.zeros((2, env.num_envs, 128), np.uint8)
        self.spin = spin

    def _translate(self, rom: bytes, long_run: bool) -> str:
        """Load the translated game, or start to make it; returns what the backend's name says of it."""
        from rnd.envs.native.translation import BackgroundTranslation, TranslatedGame
        from rnd.envs.native.translation_cache import NotTranslatedError

        try:
            game = TranslatedGame(self.rom, rom, self.batch.simd)
            if game.load(self.batch):
                return ", translated"
        except NotTranslatedError as error:
            return f", not translated: {error}"
        if not long_run:
            return ""
        self.translation = BackgroundTranslation(self.batch, game)
        return f", translating {self.rom}, once: about 20 s"

    def finish_translation(self) -> None:
        """Wait until a translation under way is loaded, or has failed. For measurements."""
        if self.translation is not None:
            self.translation.thread.join()
            backend = self.spec.backend.partition(", translating")[0]
            result = "translated" if self.translation.loaded else "not translated"
            self.spec = replace(self.spec, backend=f"{backend}, {result}")

    def close(self) -> None:
        if self.translation is not None:
            self.translation.close()
        super().close()

    def _reset(self) -> None:
        self.batch.reset(self.buffers["obs"], self.ram, self.buffers["lives"])
        self._read(slice(0, self.num_envs))

    def _send(self, group: slice) -> None:
        out = self.buffers
        arrays = (out["action"], out["obs"], out["reward"], out["terminated"], out["truncated"], self.ram, out["lives"])
        self.batch.step_async(*arrays, self.final_ram, group.start, group.stop - group.start)

    def _play(self, actions_TN: np.ndarray, obs_TNX: np.ndarray, rewards_TN: np.ndarray) -> None:
        out = self.buffers
        rest = out["terminated"], out["truncated"], self.ram, out["lives"], self.final_ram
        self.batch.play(actions_TN, obs_TNX, rewards_TN, *rest)

    def _recv(self, group: slice) -> None:
        self.batch.wait(group.start, self.spin)

    def _read(self, group: slice) -> None:
        if self.spec.has_rooms:
            out = self.buffers
            out["room"][group] = room_number(self.rom, self.ram[group])
            ended = group.start + np.flatnonzero(out["terminated"][group] | out["truncated"][group])
            if ended.size:
                out["final_room"][ended] = room_number(self.rom, self.final_ram[ended])

    def _save(self) -> Arrays:
        saved = pack_bytes([self.batch.save(i) for i in range(self.num_envs)])
        return {"native": np.frombuffer(saved, np.uint8), "ram": self.ram.copy()}

    def _load(self, state: Arrays) -> None:
        self.ram[...] = state["ram"]
        for i, saved in enumerate(unpack_bytes(state["native"].tobytes())):
            self.batch.load(i, saved)

    def _state_layout(self) -> dict[str, Rows]:
        return {"native": "packed", "ram": "array"}
