"""Atari saved at a random step continues exactly in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from replay import make, play

from rnd.config.presets import ATARI_GAMES
from rnd.envs.factories import rom_of
from rnd.foundation.errors import UserError

GAMES = [rom_of(env_id) for env_id in ATARI_GAMES.values()]
REPLAYED = 500


def save_and_continue(rom: str, trial: int, path: Path) -> str:
    """Play to a random step, save, and continue: the digest that a restored game must give."""
    random = np.random.default_rng([trial, 7])
    env, out = make(rom, seed=trial)
    env.reset(out, 0)
    play(env, out, random.integers(0, len(env.actions), random.integers(1, 1_000)))
    actions = random.integers(0, len(env.actions), REPLAYED)
    state = np.frombuffer(env.save(), np.uint8)
    np.savez(path, rom=rom, actions=actions, state=state, **out)
    return play(env, out, actions)


def restored(path: Path) -> str:
    command = [sys.executable, str(Path(__file__).with_name("replay.py")), str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.mark.parametrize("rom", GAMES)
def test_restored_in_a_new_process(rom, tmp_path):
    path = tmp_path / "state.npz"
    assert save_and_continue(rom, 0, path) == restored(path)


@pytest.mark.long
@pytest.mark.parametrize("rom", GAMES)
def test_restored_in_40_of_40_trials(rom, tmp_path):
    path = tmp_path / "state.npz"
    equal = sum(save_and_continue(rom, trial, path) == restored(path) for trial in range(1, 41))
    print(f"{rom}: {equal} of 40 trials equal")
    assert equal == 40


def test_a_state_of_another_game_is_refused():
    freeway, out = make("freeway", 0)
    venture, _ = make("venture", 0)
    with pytest.raises(UserError, match="the saved state is of freeway, not of venture"):
        venture.load(freeway.save(), out, 0)
