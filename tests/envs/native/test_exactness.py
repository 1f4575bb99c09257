"""The native core against ale-py, briefly; the long comparison is `python -m rnd.envs.native.exactness`."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ale_py")
native = pytest.importorskip("rnd.envs.native")
if not native.available():
    pytest.skip(native.why_unavailable(), allow_module_level=True)

from rnd.envs.ale_env import ale_interface  # noqa: E402
from rnd.envs.native.exactness import compare_game  # noqa: E402
from rnd.envs.native.roms import read_rom  # noqa: E402

GAMES = ("montezuma_revenge", "gravitar", "pitfall", "private_eye", "solaris", "venture", "freeway")


@pytest.mark.parametrize(
    "game", [game if game in GAMES else pytest.param(game, marks=pytest.mark.long) for game in native.supported_games()]
)
def test_equals_ale_py_on_every_observable(game: str) -> None:
    frames = 5_000
    result = compare_game(game, frames, seed=12_345)
    assert result.exact, result.first_mismatch
    assert result.frames >= frames - 3


@pytest.mark.parametrize("simd", ["portable", "avx2", "avx512"])
def test_every_instruction_set_draws_the_same_screen(simd: str) -> None:
    try:
        result = compare_game("montezuma_revenge", 1_200, seed=7, simd=simd)
    except ValueError as error:
        pytest.skip(str(error))
    assert result.exact, result.first_mismatch


class Reference:
    """The semantics of `AtariBatch.step`, written plainly over ale-py and OpenCV."""

    def __init__(self, game: str, seed: int, sticky: float, limit: int) -> None:
        self.ale = ale_interface(game)
        self.actions = self.ale.getMinimalActionSet()
        self.state, self.sticky, self.limit = seed, sticky, limit

    def uniform(self) -> float:
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    def observe(self, *screens: np.ndarray) -> np.ndarray:
        import cv2

        return np.asarray(cv2.resize(np.maximum.reduce(screens), (84, 84), interpolation=cv2.INTER_AREA))

    def reset(self) -> np.ndarray:
        self.ale.reset_game()
        self.frames = 0
        self.executed = self.actions[0]
        return self.observe(self.ale.getScreenGrayscale())

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        reward, screens = 0.0, []
        for _ in range(4):
            if self.uniform() >= self.sticky:
                self.executed = self.actions[action]
            reward += self.ale.act(self.executed)
            self.frames += 1
            screens.append(self.ale.getScreenGrayscale())
            over = self.ale.game_over()
            limit = self.frames >= self.limit
            if over or limit:
                self.final_ram = self.ale.getRAM()
                return self.reset(), reward, over, limit and not over
        return self.observe(*screens[-2:]), reward, False, False


@pytest.mark.parametrize("game", GAMES)
def test_step_is_frame_skip_stickiness_maximum_and_area_resize(game: str) -> None:
    pytest.importorskip("cv2")
    n, limit = 2, 1_001
    batch = native.AtariBatch(read_rom(game), game, np.array([5, 6], np.uint64), threads=1, max_episode_frames=limit)
    references = [Reference(game, seed, 0.25, limit) for seed in (5, 6)]
    frames = np.zeros((n, 84, 84), np.uint8)
    ram, final_ram, lives = np.zeros((n, 128), np.uint8), np.zeros((n, 128), np.uint8), np.zeros(n, np.int32)
    rewards, terminated, truncated = np.zeros(n, np.float32), np.zeros(n, bool), np.zeros(n, bool)
    batch.reset(frames, ram, lives)
    for i, reference in enumerate(references):
        assert np.array_equal(frames[i], reference.reset())
    rng, ended = np.random.default_rng(0), 0
    for _ in range(600):
        actions = rng.integers(batch.num_actions, size=n)
        batch.step(actions, frames, rewards, terminated, truncated, ram, lives, final_ram)
        for i, reference in enumerate(references):
            frame, reward, over, limited = reference.step(int(actions[i]))
            assert (rewards[i], terminated[i], truncated[i]) == (reward, over, limited)
            assert np.array_equal(ram[i], reference.ale.getRAM())
            assert lives[i] == reference.ale.lives()
            assert np.array_equal(frames[i], frame)
            ended += over or limited
            assert not (over or limited) or np.array_equal(final_ram[i], reference.final_ram)
    assert ended >= 2 * n
