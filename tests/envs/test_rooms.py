"""Rooms and levels are read from the right bytes of RAM."""

from __future__ import annotations

import itertools
from contextlib import closing

import numpy as np
import pytest

from rnd import envs
from rnd.config import Config, EnvConfig
from rnd.config.presets import ATARI_GAMES
from rnd.envs.ale_env import AleEnv
from rnd.envs.local import LocalEnvs
from rnd.envs.native_envs import unsupported_reason

OUT_OF_THE_FIRST_ROOM = (
    "1x1 3x3 4x1 1x1 0x16 4x1 0x1 11x1 1x2 2x9 5x1 3x1 11x7 5x5 0x3 5x5 3x10 4x6 12x5 2x15 12x2 3x1 5x13 12x13 2x12 "
    "3x4 12x5 0x1 2x3 0x2 4x4 5x2 3x2 5x9 11x11 1x2 12x1 0x13 11x4 3x2 5x2 11x1 4x3 1x5 3x2 4x1 11x1 5x2 4x3 11x5 "
    "2x11 11x18 4x4 12x4 5x2 12x2 2x11 12x3 2x12 3x1 4x1 0x11 1x5 11x3 5x16 0x3 2x10 5x11 12x1 0x1 2x5 4x1 5x12 1x11 "
    "5x5 12x17"
)
"""ACTIONxSTEPS, found by a search over saved states: fetch the key, open the left door, walk out. No sticky actions."""

LEFT = 4


def make(rom: str, max_episode_frames: int = 18_000) -> LocalEnvs:
    def one(i: int) -> AleEnv:
        return AleEnv(rom, rom, seed=i, frame_skip=4, sticky=0.0, max_episode_frames=max_episode_frames)

    env = LocalEnvs(one, 1)
    env.reset()
    return env


def script() -> list[int]:
    pairs = (part.split("x") for part in OUT_OF_THE_FIRST_ROOM.split())
    return [int(action) for action, steps in pairs for _ in range(int(steps))]


def test_leaving_the_first_room_of_montezuma():
    actions = script()
    env = make("montezuma_revenge", max_episode_frames=4 * len(actions) + 40)
    rewards = 0.0
    for t, action in enumerate(actions):
        step = env.step(np.array([action]))
        rewards += step.reward.item()
        assert step.info.room.item() == (1 if t < len(actions) - 1 else 0)
        assert step.info.entered == ([] if t < len(actions) - 1 else [0])
    assert rewards == 400  # 100 for the key, 300 for the door
    for _ in range(10):
        step = env.step(np.array([0]))
    assert step.info.episodes[0].rooms == {0, 1}


@pytest.mark.parametrize(("backend", "workers"), [("ale", 0), ("ale", 1), ("native", 0)])
def test_a_room_entered_at_the_time_limit_counts(backend, workers):
    """The last of the script's steps enters room 0, and ends the first episode: it is reset to room 1 at once."""
    actions = script()
    env_config = EnvConfig(
        id=ATARI_GAMES["montezuma"],
        num_envs=2,
        workers=workers,
        backend=backend,
        sticky=0.0,
        max_episode_frames=4 * len(actions),
    )
    problem = unsupported_reason(Config(env=env_config)) if backend == "native" else None
    if problem:
        pytest.skip(f"native core: {problem}")
    with closing(envs.make(Config(env=env_config))) as env:
        env.reset()
        for _ in range(2):
            for action in actions:
                step = env.step(np.array([action, 0]))
            assert step.info.truncated.tolist() == [True, True] and step.info.room.tolist() == [1, 1]
            assert step.info.entered == [0, 1, 1]  # the second environment never left room 1
            assert [episode.rooms for episode in step.info.episodes] == [{0, 1}, {1}]
            assert env.buffers["final_room"].tolist() == [0, 1]


def test_the_level_number_rises_behind_the_treasure_room():
    """RAM byte 57. To get to the treasure room (15), the number of its neighbour (16) is written at the door."""
    env = make("montezuma_revenge")
    *walk, last = script()
    for action in walk:
        env.step(np.array([action]))
    env.envs[0].ale.setRAM(3, 16)
    places = [env.step(np.array([last])).info.room.item()]
    for _ in range(300):
        places.append(env.step(np.array([0])).info.room.item())
    assert sorted(set(places), key=places.index) == [15, 256 + 1]  # room 1 of the second level


def test_the_rooms_of_pitfall():
    """Pitfall!'s rooms are the states of a shift register; going left steps it backwards."""
    env = make("pitfall")
    actions = env.envs[0].actions
    rooms = [int(env.buffers["room"][0])]
    for _ in range(240):
        room = env.step(np.array([actions.index(LEFT)])).info.room.item()
        if room != rooms[-1]:
            rooms.append(room)
    assert rooms[0] == 0xC4 and len(rooms) == 5
    for room, left in itertools.pairwise(rooms):
        assert left == room >> 1 | ((room >> 4 ^ room >> 5 ^ room >> 6 ^ room) & 1) << 7


def test_games_without_rooms_report_none():
    env = make("venture")
    step = env.step(np.array([1]))
    assert not env.spec.has_rooms and step.info.room.item() == -1 and step.info.entered == []
