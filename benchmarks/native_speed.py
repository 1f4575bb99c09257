"""Speed of the native Atari core against ale-py's AtariVectorEnv: whole pipeline, same settings, one run.

    python benchmarks/native_speed.py [--games pitfall solaris] [--rounds 5] [--envs 8] [--simd auto] [--no-translate]

Both have one thread and are measured in turns; the best round of each counts. Rates are in raw frames per second of
processor time, so that other work on the machine does not enter; --wall uses elapsed time instead. The second table
gives the native core's scaling from one thread to two (always elapsed time).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from ale_py.vector_env import AtariVectorEnv

from rnd.envs.native import AtariBatch, supported_games
from rnd.envs.native.roms import read_rom
from rnd.envs.native.translation import TranslatedGame

GAMES = ("montezuma_revenge", "gravitar", "pitfall", "private_eye", "solaris", "venture", "freeway")
SKIP = 4


class NativeRunner:
    def __init__(self, game: str, envs: int, threads: int, simd: str, translate: bool) -> None:
        self.batch = AtariBatch(read_rom(game), game, np.arange(envs, dtype=np.uint64), threads=threads, simd=simd)
        if translate:
            TranslatedGame(game, read_rom(game), self.batch.simd).load_or_make(self.batch)
        self.arrays = (
            np.zeros((envs, 84, 84), np.uint8),
            np.zeros(envs, np.float32),
            np.zeros(envs, np.uint8),
            np.zeros(envs, np.uint8),
            np.zeros((envs, 128), np.uint8),
            np.zeros(envs, np.int32),
            np.zeros((envs, 128), np.uint8),
        )
        self.batch.reset(self.arrays[0], self.arrays[4], self.arrays[5])

    def step(self, actions: np.ndarray) -> None:
        self.batch.step(actions, *self.arrays)


def ale_vector_env(game: str, envs: int) -> AtariVectorEnv:
    env = AtariVectorEnv(
        game,
        num_envs=envs,
        num_threads=1,
        noop_max=0,
        use_fire_reset=False,
        frameskip=SKIP,
        stack_num=1,
        grayscale=True,
        img_height=84,
        img_width=84,
        repeat_action_probability=0.25,
        episodic_life=False,
        reward_clipping=False,
        max_num_frames_per_episode=18_000,
    )
    env.reset()
    return env


def rate(step: Callable[[np.ndarray], object], actions: np.ndarray, clock: Callable[[], float]) -> float:
    start = clock()
    for row in actions:
        step(row)
    return actions.size * SKIP / (clock() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=[g for g in GAMES if g in supported_games()])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--simd", default="auto")
    parser.add_argument("--no-translate", dest="translate", action="store_false", help="the interpreter alone")
    parser.add_argument("--wall", action="store_true", help="elapsed time instead of processor time")
    args = parser.parse_args()
    clock = time.perf_counter if args.wall else time.process_time
    rng = np.random.default_rng(0)

    print("| game | native frames/s | AtariVectorEnv frames/s | ratio |\n| --- | ---: | ---: | ---: |")
    for game in args.games:
        runner, vector = NativeRunner(game, args.envs, 1, args.simd, args.translate), ale_vector_env(game, args.envs)
        count = runner.batch.num_actions
        native, ale = 0.0, 0.0
        for _ in range(args.rounds):
            native = max(native, rate(runner.step, rng.integers(count, size=(300, args.envs)), clock))
            ale = max(ale, rate(vector.step, rng.integers(count, size=(60, args.envs)).astype(np.int32), clock))
        print(f"| {game} | {native:,.0f} | {ale:,.0f} | {native / ale:.2f} |", flush=True)

    print("\n| game | one thread | two threads | ratio |\n| --- | ---: | ---: | ---: |")
    for game in args.games[:1]:
        runners = [NativeRunner(game, 32, threads, args.simd, args.translate) for threads in (1, 2)]
        best = [0.0, 0.0]
        for _ in range(2 * args.rounds):
            for i, runner in enumerate(runners):
                best[i] = max(
                    best[i],
                    rate(runner.step, rng.integers(runner.batch.num_actions, size=(100, 32)), time.perf_counter),
                )
        print(f"| {game} | {best[0]:,.0f} | {best[1]:,.0f} | {best[1] / best[0]:.2f} |")


if __name__ == "__main__":
    main()
