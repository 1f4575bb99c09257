"""Play a trace again: an Atari game in the native core and in ale-py, side by side, other environments once.

Both emulators draw sticky actions from the same generator (`rnd.envs.splitmix`), so they must agree in every byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rnd import envs
from rnd.checkpoint.export import SavedAgent
from rnd.config import Config
from rnd.envs.ale_env import AleEnv
from rnd.envs.gym_vector import GymVectorEnvs
from rnd.envs.interface import Episode, VectorEnv
from rnd.envs.local import LocalEnvs
from rnd.envs.native_envs import NativeEnvs, unsupported_reason
from rnd.envs.tensor_env import TensorEnvs
from rnd.foundation.errors import RunError, UserError
from rnd.training.evaluation import MAX_STEPS, Evaluation, evaluation_config
from rnd.training.trace import Trace, check_actions, episode_config, weights_hash

NATIVE, ALE = "native core", "ale-py"
COMPARED = ("reward", "terminated", "truncated", "obs", "lives", "room", "final_room")
NAMES = {"obs": "frame", "final_room": "last room"}
"""What people call them."""


class Stop(NamedTuple):
    """A room on the route of an episode: entered for the first time, or where a reward was earned."""

    room: int
    rewards: list[float]

    def __str__(self) -> str:
        level = f" of level {self.room // 256 + 1}" if self.room >= 256 else ""
        return " ".join([f"room {self.room % 256}{level}", *(f"{reward:+,g}" for reward in self.rewards)])


class Replayed(NamedTuple):
    """An episode that was played again and found to be as the trace says."""

    backends: list[str]
    """What played it."""
    missing: list[str]
    """What could not, with the reason."""
    episode: Episode
    observations_sha256: str
    route: list[Stop]
    """Empty where the game's rooms are not known."""


def record(agent: SavedAgent, name: str, result: Evaluation) -> Trace:
    """The trace of the best episode of an evaluation. It has been replayed: what cannot be is refused."""
    number, card = result.best_episode, agent.card
    if result.lengths[number] >= MAX_STEPS:
        raise UserError(f"the best episode has no end within {MAX_STEPS:,} steps: there is no trace of it")
    trace = Trace(
        episode_config(evaluation_config(agent.config, result.seed, number, 1)),
        result.actions,
        result.seed,
        result.returns[number],
        result.rooms[number],
        {
            "name": name,
            **{key: card[key] for key in ("iteration", "frames")},
            "mean_return": card["score"],
            "policy_sha256": weights_hash(agent.policy),
        },
    )
    played = replay(trace)
    return replace(trace, observations_sha256=played.observations_sha256) if is_atari(trace.config) else trace


def replay(trace: Trace, progress: Callable[[int], None] = lambda step: None) -> Replayed:
    """Play the episode; RunError names the first step at which anything differs. UserError where it cannot be played.

    `progress` is called with the number of steps."""
    with ExitStack() as stack:
        backends, missing = make_backends(trace.config)
        for env in backends.values():
            stack.enter_context(closing(env))
        for env in backends.values():
            refuse_random(env)
            check_actions(trace.actions, env.spec)
        hashed, episodes, route = hashlib.sha256(), [Episode(0, 0.0, 0, frozenset())], list[Stop]()
        for step, seen, episodes in played(backends, trace.actions):
            compare(seen, step)
            shows = next(iter(seen.values()))
            hashed.update(shows["obs"].tobytes())
            if is_atari(trace.config) and trace.rooms:
                extend(route, int(shows.get("final_room", shows["room"])), float(shows["reward"]) if step else 0.0)
            if episodes and step < len(trace.actions):
                raise RunError(f"the episode ends at step {step:,} of {len(trace.actions):,}")
            progress(step)
        if not episodes:
            raise RunError(f"the episode does not end with its last action, at step {len(trace.actions):,}")
    check_result(trace, episodes, [*backends], hashed.hexdigest())
    return Replayed([*backends], missing, episodes[0], hashed.hexdigest(), route)


def extend(route: list[Stop], room: int, reward: float) -> None:
    """Add the room and the reward of a step."""
    if all(room != stop.room for stop in route) or (reward and room != route[-1].room):
        route.append(Stop(room, []))
    if reward:
        route[-1].rewards.append(reward)


def make_backends(config: Config) -> tuple[dict[str, VectorEnv], list[str]]:
    """What plays an environment, by name, and what cannot, with the reason."""
    if not is_atari(config):
        env = envs.make(config)
        return {env.spec.backend: env}, []
    made, missing = dict[str, VectorEnv](), list[str]()
    if problem := unsupported_reason(config):
        missing.append(f"the {NATIVE}: {problem}")
    else:
        made[NATIVE] = envs.make(replace(config, env=replace(config.env, backend="native")))
    return made | {ALE: envs.make(replace(config, env=replace(config.env, backend="ale")))}, missing


def is_atari(config: Config) -> bool:
    return config.env.id.startswith("ALE/")


def refuse_random(env: VectorEnv) -> None:
    """Refuse environments whose episodes are not the same whenever they are played from their seed."""
    if isinstance(env, GymVectorEnvs | TensorEnvs):
        raise UserError(f"{env.spec.id} is a vector environment, whose episodes cannot be played one by one: no trace")
    env.check_repeats()
    if not env.repeats:
        raise UserError(f"{env.spec.id} draws randomness from elsewhere than its seed: its episodes cannot be replayed")


def played(
    backends: dict[str, VectorEnv], actions: np.ndarray
) -> Iterator[tuple[int, dict[str, dict[str, np.ndarray]], list[Episode]]]:
    """Step, what each backend shows after it, and the episodes that ended in it, one per backend. Step 0: the reset."""
    for env in backends.values():
        env.reset()
    yield 0, {name: shown(env) for name, env in backends.items()}, []
    for step, action in enumerate(actions.astype(np.float32 if actions.dtype.kind == "f" else np.int64), 1):
        steps = [env.step(action[None]) for env in backends.values()]
        yield step, {name: shown(env) for name, env in backends.items()}, [e for s in steps for e in s.info.episodes]


def shown(env: VectorEnv) -> dict[str, np.ndarray]:
    """What a step has written, as it is now, and the game's memory."""
    found = {name: env.buffers[name][0] for name in COMPARED}
    if not (found["terminated"] or found["truncated"]):
        del found["final_room"]  # of an earlier step
    if isinstance(env, NativeEnvs):
        found["RAM"] = env.ram[0]
    elif isinstance(env, LocalEnvs) and isinstance(env.envs[0], AleEnv):
        found["RAM"] = env.envs[0].ale.getRAM()
    return found


def compare(seen: dict[str, dict[str, np.ndarray]], step: int) -> None:
    """Raise RunError where two backends show different things."""
    for (first, a), (second, b) in pairwise(seen.items()):
        for name in a:
            if not np.array_equal(a[name], b[name]):
                at = tuple(np.argwhere(np.asarray(a[name] != b[name]))[0].tolist())
                where = f" at {at[0] if len(at) == 1 else at}" if at else ""
                values = f"{np.asarray(a[name])[at]} in the {first}, {np.asarray(b[name])[at]} in {second}"
                raise RunError(f"step {step:,}: {NAMES.get(name, name)}{where} differs: {values}")


def check_result(trace: Trace, episodes: list[Episode], backends: list[str], observations_sha256: str) -> None:
    """Raise RunError where the episode that was played is not that of the trace."""
    for backend, episode in zip(backends, episodes, strict=True):
        wanted = {"score": trace.score, "rooms": trace.rooms}
        found = {"score": episode.episode_return, "rooms": sorted(episode.rooms)}
        for name, value in found.items():
            if value != wanted[name]:
                raise RunError(f"the trace has the {name} {wanted[name]}, {backend} gives {value}")
    if trace.observations_sha256 not in (None, observations_sha256):
        raise RunError(f"the frames are not those of the trace: SHA-256 {observations_sha256[:12]}... differs")


def describe(trace: Trace, played: Replayed) -> list[str]:
    """What was confirmed, as lines of text."""
    config, agent = trace.config, trace.agent
    found = f"score {trace.score:,g}, {len(trace.actions):,} steps"
    if trace.rooms:
        found += f", {len(trace.rooms)} {'rooms' if is_atari(config) else 'cells'}"
    by = " and ".join(played.backends)
    agreed = "; they agree in reward, RAM and frame at every step" if len(played.backends) > 1 else ""
    of = f" of {agent.get('name')!s:.60}" if agent.get("name") else ""
    return [
        f"{config.env.id}: episode {trace.number} of seed {trace.seed}{of}",
        f"confirmed by {by}: {found}{agreed}",
        *([f"route: {', '.join(map(str, played.route))}"] if played.route else []),
        *(f"not played in {remark}" for remark in played.missing),
    ]
