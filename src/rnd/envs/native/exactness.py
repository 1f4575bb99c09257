"""The native core compared with ale-py, frame by frame, on every observable.

    python -m rnd.envs.native.exactness [--games montezuma_revenge pitfall] [--frames 1000000] [--translate] [--json]

RAM, reward, lives, game over and all 210 x 160 pixels of every frame must be equal, resets included. Some frames are
played from states that random play would not reach: room numbers and scores are written into both RAMs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial

import numpy as np

from rnd.envs.ale_env import ale_interface
from rnd.envs.native import AtariBatch, available, supported_games, why_unavailable
from rnd.envs.native.roms import read_rom

EPISODE_FRAMES = 18_000
STYLES = ("uniform", "held", "moving", "forced")

# RAM bytes that hold the room, the level or the score: written at random in the style "forced".
FORCED_BYTES: dict[str, dict[int, range]] = {
    "montezuma_revenge": {3: range(24), 0x13: range(0x10), 0x14: range(0x10)},
    "pitfall": {1: range(1, 256), 0x56: range(0x10)},
    "private_eye": {63: range(32), 0x49: range(0x10)},
    "venture": {90: range(9), 0x48: range(0x10)},
    "gravitar": {8: range(0x10)},
    "solaris": {0x5D: range(0x10)},
    "freeway": {0x67: range(0x10)},
}

# Forced play can reach rooms that do not exist, where the program executes data: an episode ends after the last room.
LAST_ROOM: dict[str, tuple[int, int]] = {"montezuma_revenge": (3, 23)}


@dataclass
class GameResult:
    """Result of the comparison of one game."""

    game: str
    frames: int = 0
    episodes: int = 0
    seconds: float = 0.0
    mismatches: dict[str, int] = field(default_factory=dict)
    first_mismatch: str = ""

    @property
    def exact(self) -> bool:
        return not self.mismatches

    def add_mismatch(self, what: str, where: str) -> None:
        self.mismatches[what] = self.mismatches.get(what, 0) + 1
        self.first_mismatch = self.first_mismatch or f"{what} at {where}"


def play(style: str, rng: np.random.Generator) -> Iterator[int]:
    """Endless ale-py actions (0 to 17) in a style of STYLES."""
    while True:
        if style == "uniform":
            yield from rng.integers(18, size=256).tolist()
        elif style == "moving":
            action = int(rng.choice([2, 3, 4, 5, 3, 4, 11, 12, 6, 7, 14, 15]))
            yield from [action] * int(rng.integers(4, 40))
        else:
            yield from [int(rng.integers(18))] * int(rng.choice([1, 4, 16, 60]))


def compare(
    game: str, frames: int, style: str, seed: int, result: GameResult, simd: str = "auto", translate: bool = False
) -> None:
    """Play `frames` raw frames on both and add every difference to `result`. Stops after ten."""
    from ale_py import Action

    ale = ale_interface(game)
    native = AtariBatch(read_rom(game), game, np.array([seed], np.uint64), threads=1, simd=simd)
    if translate:
        from rnd.envs.native.translation import TranslatedGame

        TranslatedGame(game, read_rom(game), native.simd).load_or_make(native)
    actions = [Action(i) for i in range(18)]
    rng = np.random.default_rng(seed)
    forced = FORCED_BYTES.get(game, {}) if style == "forced" else {}
    stream = play(style, rng)
    episode_frames = 0

    def check(where: str) -> None:
        if not np.array_equal(ale.getRAM(), native.ram(0)):
            result.add_mismatch("ram", where)
        if not np.array_equal(ale.getScreen(), native.screen(0)):
            result.add_mismatch("screen", where)
        if ale.lives() != native.lives(0):
            result.add_mismatch("lives", where)
        if ale.game_over() != native.game_over(0):
            result.add_mismatch("game over", where)

    check(f"{style} {seed}, start")
    for frame in range(frames):
        if forced and frame % 997 == 500:
            for address, values in forced.items():
                value = int(rng.choice(values))
                ale.setRAM(address, value)
                native.set_ram(0, address, value)
        action = next(stream)
        if ale.act(actions[action]) != native.raw_act(0, action):
            result.add_mismatch("reward", f"{style} {seed}, frame {frame}")
        check(f"{style} {seed}, frame {frame}")
        episode_frames += 1
        address, last = LAST_ROOM.get(game, (0, 255))
        if ale.game_over() or episode_frames >= EPISODE_FRAMES or ale.getRAM()[address] > last:
            ale.reset_game()
            native.raw_reset(0)
            check(f"{style} {seed}, reset after frame {frame}")
            result.episodes += 1
            episode_frames = 0
        if sum(result.mismatches.values()) >= 10:
            break
    result.frames += frame + 1


def compare_game(game: str, frames: int, seed: int = 0, simd: str = "auto", translate: bool = False) -> GameResult:
    """All styles of play, in pieces of at most 100,000 frames, each from its own seed."""
    result = GameResult(game)
    start = time.perf_counter()
    share = max(1, frames // len(STYLES))
    for index, style in enumerate(STYLES):
        for piece, done in enumerate(range(0, share, 100_000)):
            if sum(result.mismatches.values()) < 10:
                compare(game, min(100_000, share - done), style, seed + 1000 * index + piece, result, simd, translate)
    result.seconds = time.perf_counter() - start
    return result


def run_exactness(
    games: Sequence[str] | None = None,
    frames: int = 1_000_000,
    seed: int = 0,
    jobs: int = 1,
    simd: str = "auto",
    translate: bool = False,
) -> Iterator[GameResult]:
    """The comparison of one game after the other over `frames` raw frames; with `translate`, of its translation."""
    if not available():
        raise RuntimeError(why_unavailable())
    names = list(games) if games else list(supported_games())
    one = partial(compare_game, frames=frames, seed=seed, simd=simd, translate=translate)
    if jobs == 1:
        yield from map(one, names)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, names)


HEADER = "| game | frames | episodes | mismatches | frames/s of the comparison |\n| --- | ---: | ---: | --- | ---: |"
"""Header of the Markdown table of results."""


def row(r: GameResult) -> str:
    found = "none" if r.exact else f"{r.mismatches}, first: {r.first_mismatch}"
    return f"| {r.game} | {r.frames:,} | {r.episodes:,} | {found} | {r.frames / max(r.seconds, 1e-9):,.0f} |"


def print_rows(results: Iterable[GameResult], line: Callable[[str], object] = print) -> bool:
    """Print a table of the results, each as soon as it is there; returns whether all are exact."""
    line(HEADER)
    exact = True
    for result in results:
        line(row(result))
        exact &= result.exact
    return exact


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", help="ROM names; all supported games by default")
    parser.add_argument("--frames", type=int, default=1_000_000, help="raw frames per game")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="games compared at the same time")
    parser.add_argument("--simd", default="auto", help="auto, avx512, avx2 or portable")
    parser.add_argument("--translate", action="store_true", help="compare the games' translations")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    args = parser.parse_args()
    results = run_exactness(args.games, args.frames, args.seed, args.jobs, args.simd, args.translate)
    if not args.json:
        return 0 if print_rows(results) else 1
    found = list(results)
    print(json.dumps([asdict(r) for r in found], indent=2))
    return 0 if all(r.exact for r in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
