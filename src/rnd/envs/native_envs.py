"""Atari through the native core: threads inside one call, no processes, the same bytes as ale-py.

Legend: N environments.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rnd.config import Config
from rnd.envs import native
from rnd.envs.ale_env import atari_spec, room_number
from rnd.envs.factories import rom_of
from rnd.envs.interface import Buffers, Rows, VectorEnv
from rnd.envs.process_io import pack_bytes, unpack_bytes
from rnd.envs.spec import Arrays
from rnd.envs.splitmix import environment_seed

GROUPS = 2


def why_not(config: Config) -> str | None:
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

    def __init__(self, config: Config, threads: int, groups: int = GROUPS, spin: bool = False):
        from ale_py import roms

        env, self.rom = config.env, rom_of(config.env.id)
        self.batch = native.AtariBatch(
            Path(roms.get_rom_path(self.rom)).read_bytes(),
            self.rom,
            np.array([environment_seed(config.seed, env.first + i) for i in range(env.num_envs)], np.uint64),
            threads=threads,
            frame_skip=env.frame_skip,
            sticky=env.sticky,
            max_episode_frames=env.max_episode_frames,
        )
        backend = f"native core, {threads} thread{'s' if threads > 1 else ''}"
        spec = atari_spec(self.rom, env.id, self.batch.num_actions, env.frame_skip, backend)
        super().__init__(spec, env.num_envs, Buffers(spec, env.num_envs), groups)
        self.ram, self.final_ram = np.zeros((2, env.num_envs, 128), np.uint8)
        self.spin = spin

    def _reset(self) -> None:
        self.batch.reset(self.buffers["obs"], self.ram, self.buffers["lives"])
        self._write_rooms(slice(0, self.num_envs))

    def _send(self, group: slice) -> None:
        out = self.buffers
        arrays = (out["action"], out["obs"], out["reward"], out["terminated"], out["truncated"], self.ram, out["lives"])
        self.batch.step_async(*arrays, self.final_ram, group.start, group.stop - group.start)

    def _recv(self, group: slice) -> None:
        self.batch.wait(group.start, self.spin)
        self._write_rooms(group)

    def _write_rooms(self, rows: slice) -> None:
        if self.spec.has_rooms:
            out = self.buffers
            out["room"][rows] = room_number(self.rom, self.ram[rows])
            ended = rows.start + np.flatnonzero(out["terminated"][rows] | out["truncated"][rows])
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
