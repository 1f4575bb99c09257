"""rnd bench envs: frames per second of rnd's Atari backends and of the baseline, ale-py's AtariVectorEnv; also of
EnvPool where it is installed.

All candidates exist at the same time and are measured in turns, a fraction of a second each. They get the same game,
number of environments, cores and kind of actions (uniformly random, drawn beforehand); no policy is evaluated. rnd's
backends step in groups, as in training. AtariVectorEnv gets the same preprocessing (4 frames per step, maximum of two,
grey, 84x84, no stacking, no no-ops, no FIRE, no clipping, sticky 0.25, 18,000 frames per episode, reset in the same
step) and steps all environments with one call. So does EnvPool, with two differences: a reset plays one no-op, and it
takes a step of its own, which is counted like the others. A frame is a raw frame: four per agent step.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

import numpy as np
from rich.console import Console

from rnd.bench.progress import Progress
from rnd.checkpoint.folder import package_version
from rnd.config.presets import ATARI_GAMES, preset
from rnd.config.ranges import PositiveFloat, PositiveInt, Threads
from rnd.envs import native
from rnd.envs.factories import rom_of
from rnd.envs.interface import VectorEnv
from rnd.envs.native_envs import NativeEnvs, unsupported_reason
from rnd.envs.registry import cores
from rnd.envs.workers import WorkerEnvs
from rnd.foundation.console import say
from rnd.foundation.errors import UserError, nearest

BASELINE = "AtariVectorEnv"
ENVPOOL = "EnvPool"
RATIO = (
    "Speeds and ratios are medians over the rounds. A ratio is taken within each round, where both meet the same load, "
    "so it is not the quotient of the two speeds."
)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured."""

    games: tuple[str, ...] = ("montezuma",)
    """Games by their short names, or all."""
    num_envs: tuple[PositiveInt, ...] = (16, 128)
    """Numbers of environments."""
    backend: Literal["auto", "native", "ale"] = "auto"
    """The measured backend: native, ale (worker processes), or all that can run here."""
    workers: Threads | None = None
    """Worker processes and threads of every candidate; default: all cores."""
    seconds: PositiveFloat = 8.0
    """Measured seconds of every candidate at every size."""
    rounds: PositiveInt = 8
    """Turns that the candidates take."""
    json: bool = False
    """Print JSON instead of a table."""
    translate: bool = True
    """Translate the games for the native core first, where there is a compiler; --exactness then compares that."""
    exactness: bool = False
    """Compare the native core with ale-py frame by frame instead of measuring speed; `--games all`: every game that the
    core plays."""
    frames: PositiveInt = 100_000
    """Raw frames per game of --exactness."""


@dataclasses.dataclass(frozen=True)
class Result:
    """One candidate at one size."""

    game: str
    num_envs: int
    candidate: str
    backend: str
    """As in the start banner of a run."""
    frames_per_second: float
    ratio: float
    """Speed relative to AtariVectorEnv: the median over the rounds of the ratio within a round."""


def run(options: Options, console: Console) -> int:
    """Measure and print; returns the exit code."""
    if options.exactness:
        return exactness(options, console)
    sizes = list(itertools.product(chosen_games(options), options.num_envs))
    progress = Progress(len(sizes))
    results = [
        result
        for game, num_envs in sizes
        for result in progress(f"{game}, {num_envs} environments", partial(measure, options, game, num_envs), fastest)
    ]
    if options.json:
        threads = options.workers or cores()
        print(json.dumps({"threads": threads, "results": [dataclasses.asdict(r) for r in results]}, indent=2))
        return 0
    for r in results:
        speed = f"{r.game}, {r.num_envs} environments: {r.candidate} {r.frames_per_second:,.0f} frames/s"
        ratio = f", {r.ratio:.2f} x {BASELINE}" if r.candidate != BASELINE else ""
        console.print(f"{speed}{ratio} ({r.backend})", highlight=False, soft_wrap=True)
    say(console, RATIO)
    return 0


def fastest(results: list[Result]) -> str:
    return f"{max(r.frames_per_second for r in results):,.0f} frames/s"


def exactness(options: Options, console: Console) -> int:
    """Compare the native core with ale-py frame by frame; returns 1 where they differ or there is no native core."""
    if not native.available():
        console.print(f"no native core to compare with ale-py: {native.why_unavailable()}", highlight=False)
        return 1
    from rnd.envs.native.exactness import print_rows, run_exactness
    from rnd.envs.native.translation_cache import NotTranslatedError

    supported = native.supported_games()
    roms = supported if "all" in options.games else [rom_named(game, supported) for game in options.games]
    results = run_exactness(roms, options.frames, jobs=options.workers or cores(), translate=options.translate)
    try:
        return 0 if print_rows(results, partial(say, console)) else 1
    except NotTranslatedError as error:
        raise UserError(f"{error}; nearest: --no-translate, which compares the interpreter") from error


def rom_named(game: str, supported: Sequence[str]) -> str:
    """A ROM that the native core plays, by its name or by the short name of a game of the paper."""
    rom = rom_of(ATARI_GAMES[game]) if game in ATARI_GAMES else game
    if rom not in supported:
        raise UserError(f"the native core does not play {game}; {nearest(game, [*ATARI_GAMES, *supported])}, or all")
    return rom


def chosen_games(options: Options) -> list[str]:
    if "all" in options.games:
        return list(ATARI_GAMES)
    for game in options.games:
        if game not in ATARI_GAMES:
            raise UserError(f"unknown game {game}; {nearest(game, ATARI_GAMES)}, or all")
    return list(options.games)


def measure(options: Options, game: str, num_envs: int) -> list[Result]:
    """Results of all candidates for one game and number of environments."""
    threads = options.workers or cores()
    with ExitStack() as stack:
        envs = measured_envs(options, game, num_envs, threads)
        players = {name: player(env) for name, env in envs.items()}
        for env in envs.values():
            stack.callback(env.close)
            env.reset()
        players[BASELINE] = baseline(game, num_envs, threads)
        if importlib.util.find_spec("envpool"):
            players[ENVPOOL] = envpool_player(game, num_envs, threads)
        speeds = take_turns(players, options)
    backends = {
        BASELINE: f"ale-py, {threads} threads",
        ENVPOOL: f"version {package_version('envpool')}, {threads} threads",
        **{name: env.spec.backend for name, env in envs.items()},
    }
    results = []
    for name, speed in speeds.items():
        ratio = statistics.median(one / base for one, base in zip(speed, speeds[BASELINE], strict=True))
        results.append(Result(game, num_envs, name, backends[name], statistics.median(speed), ratio))
    return results


def measured_envs(options: Options, game: str, num_envs: int, threads: int) -> dict[str, VectorEnv]:
    config = preset(game)
    config = dataclasses.replace(
        config, env=dataclasses.replace(config.env, num_envs=num_envs, translate=options.translate)
    )
    problem = unsupported_reason(config)
    found: dict[str, VectorEnv] = {}
    if options.backend != "ale" and problem is None:
        found["native core"] = native_envs = NativeEnvs(config, threads)
        native_envs.finish_translation()
    elif options.backend == "native":
        raise UserError(f"the native core cannot run {game}: {problem}; nearest: --backend ale")
    if options.backend != "native":
        remark = "" if problem is None else f"; native core: {problem}"
        found["ale-py workers"] = WorkerEnvs(config, min(threads, num_envs), remark=remark)
    return found


def player(env: VectorEnv) -> Callable[[float], float]:
    """A function that plays for some seconds and returns frames per second; groups alternate as in training."""
    actions = np.random.default_rng(0).integers(0, env.spec.action.sizes[0], (1_000, env.num_envs))
    groups = list(enumerate(env.groups))

    def play(seconds: float) -> float:
        steps, start = 1, time.perf_counter()
        for g, rows in groups:
            env.send(g, actions[0, rows])
        while time.perf_counter() - start < seconds:
            for g, rows in groups:
                env.recv(g)
                env.send(g, actions[steps % len(actions), rows])
            steps += 1
        for g, _ in groups:
            env.recv(g)
        return steps * env.num_envs * env.spec.frame_skip / (time.perf_counter() - start)

    return play


def baseline(game: str, num_envs: int, threads: int) -> Callable[[float], float]:
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    env = AtariVectorEnv(
        rom_of(ATARI_GAMES[game]),
        num_envs,
        num_threads=threads,
        max_num_frames_per_episode=18_000,
        repeat_action_probability=0.25,
        autoreset_mode=AutoresetMode.SAME_STEP,
        stack_num=1,
        noop_max=0,
        reward_clipping=False,
        use_fire_reset=False,
    )
    env.reset(seed=0)
    return player_of_one_call(env, env.single_action_space.n, num_envs)


def envpool_player(game: str, num_envs: int, threads: int) -> Callable[[float], float]:
    envpool: Any = importlib.import_module("envpool")  # no dependency: whoever wants the comparison installs it
    env = envpool.make_gymnasium(
        ATARI_GAMES[game].removeprefix("ALE/"),
        num_envs=num_envs,
        num_threads=threads,
        max_episode_steps=18_000 // 4,
        repeat_action_probability=0.25,
        frame_skip=4,
        stack_num=1,
        noop_max=1,  # the smallest: EnvPool draws from 1 to noop_max, and 0 crashes it
        use_fire_reset=False,
        reward_clip=False,
        episodic_life=False,
    )
    env.reset()
    return player_of_one_call(env, env.action_space.n, num_envs)


def player_of_one_call(env: Any, actions_of_game: int, num_envs: int) -> Callable[[float], float]:
    """The same for an environment that steps all its copies with one call."""
    actions = np.random.default_rng(0).integers(0, actions_of_game, (1_000, num_envs))

    def play(seconds: float) -> float:
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds or steps == 0:
            env.step(actions[steps % len(actions)])
            steps += 1
        return steps * num_envs * 4 / (time.perf_counter() - start)

    return play


def take_turns(players: dict[str, Callable[[float], float]], options: Options) -> dict[str, list[float]]:
    """Frames per second of every candidate in every round."""
    turn = options.seconds / options.rounds
    rounds = [{name: play(turn) for name, play in players.items()} for _ in range(options.rounds + 1)]
    return {name: [speeds[name] for speeds in rounds[1:]] for name in players}  # the first round is a warm-up
