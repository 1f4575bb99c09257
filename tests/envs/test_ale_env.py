"""Atari exactly as in the paper, checked against Gymnasium's own preprocessing and ale-py itself."""

from __future__ import annotations

import cv2
import gymnasium
import numpy as np
import pytest
from ale_py import Action
from ale_py.env import AtariEnv
from gymnasium.wrappers import AtariPreprocessing

from rnd.config.presets import ATARI_GAMES
from rnd.envs import native
from rnd.envs.ale_env import AleEnv
from rnd.envs.factories import rom_of
from rnd.envs.spec import buffer_layout

GAMES = [rom_of(env_id) for env_id in ATARI_GAMES.values()]


def make(rom: str, seed: int = 3, sticky: float = 0.25, max_episode_frames: int = 18_000, **options: bool):
    """An environment and the arrays that it writes to."""
    env = AleEnv(rom, rom, seed, frame_skip=4, sticky=sticky, max_episode_frames=max_episode_frames, **options)
    return env, {name: np.zeros(shape, dtype) for name, (shape, dtype) in buffer_layout(env.spec, 1).items()}


class Recorder:
    """Calls ale-py, and records the raw actions."""

    def __init__(self, ale):
        self._ale = ale
        self.executed: list[int] = []

    def __getattr__(self, name):
        return getattr(self._ale, name)

    def act(self, action):
        self.executed.append(action)
        return self._ale.act(action)


class Replay(gymnasium.Wrapper):
    """Ignores the action that it is given and takes the next one of a recording."""

    def __init__(self, env):
        super().__init__(env)
        self.recording: list[int] = []

    def step(self, action):
        return self.env.step(self.recording.pop(0))


@pytest.mark.parametrize("rom", [*GAMES[:3], *(pytest.param(rom, marks=pytest.mark.long) for rom in GAMES[3:])])
def test_frames_are_those_of_gymnasium(rom):
    """1,000 agent steps with the same executed raw actions; at least two resets included (by the frame limit)."""
    cap = 1_500
    env, out = make(rom, max_episode_frames=cap)
    env.ale = Recorder(env.ale)
    replay = Replay(
        AtariEnv(
            rom,
            frameskip=1,
            repeat_action_probability=0.0,
            full_action_space=True,  # then the number of an action is that of ale-py
            max_num_frames_per_episode=cap,
        )
    )
    theirs = AtariPreprocessing(replay, noop_max=0, frame_skip=4)
    random, ends = np.random.default_rng(0), 0
    env.reset(out, 0)
    assert np.array_equal(out["obs"][0], theirs.reset(seed=0)[0])
    for step in range(1_000):
        out["action"][0] = random.integers(len(env.actions))
        env.step(out, 0)
        replay.recording, env.ale.executed = env.ale.executed, []
        obs, reward, terminated, truncated, info = theirs.step(0)
        assert (reward, terminated, truncated) == (out["reward"][0], out["terminated"][0], out["truncated"][0]), step
        assert not replay.recording
        if terminated or truncated:
            ends += 1
            obs, info = theirs.reset()
        assert np.array_equal(out["obs"][0], obs), step
        assert info["lives"] == out["lives"][0]
    assert ends >= 2


class NoGame:
    """ale-py's interface without a game: the draws alone."""

    def __init__(self):
        self.executed: list[int] = []

    def act(self, action):
        self.executed.append(action)
        return 0

    def game_over(self, with_truncation):
        return False

    def getScreenGrayscale(self, screen):
        pass

    def lives(self):
        return 1


def test_stickiness_is_drawn_for_every_raw_frame():
    env, out = make("freeway", max_episode_frames=10**9)
    env.ale = NoGame()
    repeated = frames = changed_inside = 0
    for step in range(30_000):
        out["action"][0] = step % 3
        before = env.executed
        env.step(out, 0)
        executed, env.ale.executed = env.ale.executed, []
        wanted = env.actions[step % 3]
        for action in executed:
            if before != wanted:  # only then a repeated action differs from the wanted one
                frames += 1
                repeated += action == before
            before = action
        changed_inside += len(set(executed)) > 1
    assert frames > 30_000
    # Three deviations of a share of that many draws are 0.0075 at most; the generator is seeded, so this is exact.
    assert repeated / frames == pytest.approx(0.25, abs=0.005)
    assert changed_inside > 1_000


def test_no_stickiness_at_zero_or_over_the_end_of_an_episode():
    env, out = make("freeway", sticky=0.0)
    env.ale = Recorder(env.ale)
    env.reset(out, 0)
    for action in (1, 2, 0):
        out["action"][0] = action
        env.step(out, 0)
    assert env.ale.executed == [a for action in (1, 2, 0) for a in [env.actions[action]] * 4]
    out["action"][0] = 1
    env.step(out, 0)
    env.reset(out, 0)
    assert env.executed == Action.NOOP.value


@pytest.mark.parametrize("rom", ["montezuma_revenge", "pitfall"])
def test_an_idle_episode_has_4500_steps(rom):
    env, out = make(rom)
    env.reset(out, 0)
    for step in range(1, 4_501):
        env.step(out, 0)
        assert not out["terminated"][0]
        assert out["truncated"][0] == (step == 4_500)
    assert env.frames == 0


def test_a_lost_life_does_not_end_the_episode():
    env, out = make("montezuma_revenge")
    env.reset(out, 0)
    random, lives = np.random.default_rng(0), [int(out["lives"][0])]
    while not out["terminated"][0]:
        out["action"][0] = random.integers(18)
        env.step(out, 0)
        if out["lives"][0] != lives[-1]:
            lives.append(int(out["lives"][0]))
    assert lives == [6, 5, 4, 3, 2, 1, 6]


def test_the_last_observation_is_written_at_a_time_limit():
    env, out = make("montezuma_revenge", max_episode_frames=200, time_limits=True)
    other, unlimited = make("montezuma_revenge")
    env.reset(out, 0)
    other.reset(unlimited, 0)
    for _ in range(50):
        out["action"][0] = unlimited["action"][0] = 3
        env.step(out, 0)
        other.step(unlimited, 0)
    assert out["truncated"][0]
    assert np.array_equal(out["final_obs"][0], unlimited["obs"][0])
    assert not np.array_equal(out["final_obs"][0], out["obs"][0])


def test_shrinking_equals_opencv():
    """The native core's resize replaces OpenCV's: the same bytes, ties included."""
    if not native.available():
        pytest.skip(native.why_unavailable())
    random = np.random.default_rng(0)
    for levels in (2, 3, 17, 256):  # few levels make many exact halves
        for _ in range(25):
            newest, other = (random.integers(0, levels, (2, 210, 160)) * (255 // (levels - 1))).astype(np.uint8)
            found = np.zeros((84, 84), np.uint8)
            native.shrink(newest, other, found)
            expected = cv2.resize(np.maximum(newest, other), (84, 84), interpolation=cv2.INTER_AREA)
            np.testing.assert_array_equal(found, expected)
