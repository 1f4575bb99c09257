"""A new process for test_restore.py: restore a saved game, replay actions, print a digest of all that is seen.

python replay.py FILE
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from rnd.envs.ale_env import AleEnv
from rnd.envs.spec import buffer_layout


def play(env: AleEnv, out: dict[str, np.ndarray], actions: np.ndarray) -> str:
    """Digest of RAM, frames, rewards, ends, lives and rooms over some steps."""
    digest = hashlib.sha256()
    for action in actions:
        out["action"][0] = action
        env.step(out, 0)
        digest.update(env.ale.getRAM().tobytes())
        for array in out.values():
            digest.update(array.tobytes())
    return digest.hexdigest()


def make(rom: str, seed: int) -> tuple[AleEnv, dict[str, np.ndarray]]:
    env = AleEnv(rom, rom, seed, frame_skip=4, sticky=0.25, max_episode_frames=3_000)
    return env, {name: np.zeros(shape, dtype) for name, (shape, dtype) in buffer_layout(env.spec, 1).items()}


if __name__ == "__main__":
    saved = np.load(sys.argv[1])
    env, out = make(str(saved["rom"]), seed=999)  # the saved generator must replace this seed
    for name, array in out.items():
        array[...] = saved[name]
    env.load(saved["state"].tobytes(), out, 0)
    print(play(env, out, saved["actions"]))
