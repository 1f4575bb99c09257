"""N environments stepped together: the interface that the trainer uses.

Legend: N environments, n = environments of one group.

The environments are divided into groups. `send(group, actions)` starts a step of one group and `recv(group)` waits for
its result, so one group can step while the policy is evaluated for another. `recv` is `wait`, which returns what the
policy needs, then `read`, which checks the step and updates the episode statistics; it can run while the policy is
evaluated. `step` does all of this for all groups. An environment whose episode ends is reset within the same step: the
observation returned with `done` is the first of the next episode, as in the paper.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rnd.envs.process_io import pack_bytes, unpack_bytes
from rnd.envs.spec import Arrays, EnvSpec, StepCheck, buffer_layout
from rnd.foundation.errors import RunError, UserError

Rows = Literal["array", "packed", "ragged", "shared"]
"""How an array of a saved state holds the environments of a rank.

array: one row per environment. packed: `pack_bytes` of one byte string per environment. ragged: as many rows per
environment as in `<name>_count`. shared: one number for all; where ranks are merged, the largest is kept.
"""


class Episode(NamedTuple):
    """One finished episode, unclipped."""

    env: int
    episode_return: float
    length: int
    rooms: frozenset[int]


class StepInfo(NamedTuple):
    """What a step reports besides observations, rewards and ends."""

    truncated: Tensor
    """[n] bool: ended by a time limit."""
    final_obs: Tensor | None
    """[n, ...] last observation of the ended episode, valid where `truncated`; None where it is never needed."""
    room: Tensor
    """[n] int32: level * 256 + room, or -1."""
    lives: Tensor
    """[n] int32."""
    episodes: list[Episode]
    """Episodes that ended in this step."""
    entered: list[int]
    """Rooms that an environment entered in this step: before a reset, after it, or both."""


class PolicyInput(NamedTuple):
    """What the policy needs of a step. The tensors are views that the next `send` of the group overwrites."""

    obs: Tensor
    done: Tensor
    truncated: Tensor
    final_obs: Tensor | None


class Step(NamedTuple):
    """Result of a step. The tensors are views that the next `send` of the group overwrites."""

    obs: Tensor
    reward: Tensor
    done: Tensor
    info: StepInfo


class Buffers:
    """The host memory that environments write to, one row per environment. Pinned where CUDA is available."""

    def __init__(self, spec: EnvSpec, num_envs: int, arrays: Arrays | None = None):
        if arrays is None:
            layout = buffer_layout(spec, num_envs)
            pin = torch.cuda.is_available()
            arrays = {
                name: torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, pin_memory=pin).numpy()
                for name, (shape, dtype) in layout.items()
            }
        for name, array in arrays.items():
            array.fill(-1 if name in ("room", "final_room") else 0)
        self.arrays = arrays
        self.tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]


class VectorEnv(ABC):
    """N environments. Subclasses step them; this class handles groups, episode statistics and saved states."""

    device = torch.device("cpu")
    """Where the environments are."""

    def __init__(self, spec: EnvSpec, num_envs: int, buffers: Buffers, groups: int = 1):
        self.spec = spec
        self.num_envs = num_envs
        self.buffers = buffers
        cuts = np.linspace(0, num_envs, min(groups, num_envs) + 1).astype(int)
        self.groups = tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(cuts))
        self._views = [{name: tensor[rows] for name, tensor in buffers.tensors.items()} for rows in self.groups]
        self._check = StepCheck(spec.observation)
        self._done = [np.zeros(rows.stop - rows.start, bool) for rows in self.groups]
        self._returns = np.zeros(num_envs, np.float64)
        self._lengths = np.zeros(num_envs, np.int64)
        self._rooms: list[set[int]] = [set() for _ in range(num_envs)]
        self._room = np.full(num_envs, -1, np.int32)
        self.repeats = True
        """Whether episodes are the same whenever they are played from their seeds; see `check_repeats`."""
        self.restarted: set[int] = set()
        """Environments whose saved episode could not be continued: their next step ends it, and it is not reported."""

    # --- what a subclass implements --------------------------------------------------------------

    @abstractmethod
    def _reset(self) -> None:
        """Reset all environments; write obs, room and lives."""

    @abstractmethod
    def _send(self, group: slice) -> None:
        """Start a step of the group with the actions in `buffers["action"]`."""

    def _recv(self, group: slice) -> None:
        """Wait until the group's step is in the buffers; not needed where `_send` does the whole step."""

    def _read(self, group: slice) -> None:
        """Write what only the statistics of episodes need, if `_recv` has not."""

    def _play(self, actions_TN: np.ndarray, obs_TNX: np.ndarray, rewards_TN: np.ndarray) -> None:
        """`play`; a subclass that can take many steps at once does so."""
        groups = list(enumerate(self.groups))
        for g, rows in groups:
            self.send(g, actions_TN[0, rows])
        for t in range(len(actions_TN)):
            for g, rows in groups:  # while one group is read, the others step
                step = self.recv(g)
                obs_TNX[t, rows], rewards_TN[t, rows] = step.obs, step.reward
                if t + 1 < len(actions_TN):
                    self.send(g, actions_TN[t + 1, rows])

    @abstractmethod
    def _save(self) -> dict[str, np.ndarray]:
        """The state of the environments themselves as plain arrays. Called between steps."""

    @abstractmethod
    def _load(self, state: dict[str, np.ndarray]) -> None:
        """Continue from what `_save` returned. Adds the environments that cannot to `restarted`."""

    def _state_layout(self) -> dict[str, Rows]:
        """How each array of `_save` holds the environments. The first array of an Atari backend has its name."""
        return {}

    def _repeats(self) -> bool:
        """Find out whether episodes can be repeated from their seeds."""
        return True

    def close(self) -> None:
        """Free processes and memory. Safe to call twice."""

    # --- what the trainer calls ------------------------------------------------------------------

    def check_repeats(self) -> None:
        """Find out, in environments that are then thrown away, whether episodes repeat from their seeds. Where they do
        not, no episode can be restored."""
        self.repeats = self._repeats()

    def reset(self) -> Tensor:
        """Start all episodes; returns the first observations, [N, ...]."""
        self._reset()
        self._refuse(self._check(self.buffers.arrays, slice(0, self.num_envs), None))
        self._returns[:] = 0
        self._lengths[:] = 0
        self._rooms = [set() for _ in range(self.num_envs)]
        self._room[:] = -1
        for i in range(self.num_envs):
            self._enter_room(i, "room")
        return self.buffers.tensors["obs"]

    def send(self, group: int, actions: Tensor | np.ndarray) -> None:
        rows = self.groups[group]
        self.buffers["action"][rows] = actions.numpy() if isinstance(actions, Tensor) else actions
        self._send(rows)

    def recv(self, group: int) -> Step:
        """`wait`, then `read`."""
        self.wait(group)
        return self.read(group)

    def wait(self, group: int) -> PolicyInput:
        """Wait for the group's step. `read` must come before the next `send`."""
        rows = self.groups[group]
        self._recv(rows)
        done = self._done[group]
        np.logical_or(self.buffers["terminated"][rows], self.buffers["truncated"][rows], out=done)
        view = self._views[group]
        return PolicyInput(view["obs"], torch.from_numpy(done), view["truncated"], view.get("final_obs"))

    def read(self, group: int) -> Step:
        """The step that `wait` waited for, with episode statistics. Raises RunError where a number is wrong."""
        rows, view, done = self.groups[group], self._views[group], self._done[group]
        self._read(rows)
        self._refuse(self._check(self.buffers.arrays, rows, self._lengths))
        episodes, entered = self._update_episodes(rows, done)
        info = StepInfo(view["truncated"], view.get("final_obs"), view["room"], view["lives"], episodes, entered)
        return Step(view["obs"], view["reward"], torch.from_numpy(done), info)

    def _refuse(self, problem: str | None) -> None:
        if problem:
            raise RunError(problem + "; the run stops before it learns from it")

    def step(self, actions: Tensor | np.ndarray) -> Step:
        """Step all environments."""
        for g, rows in enumerate(self.groups):
            self.send(g, actions[rows])
        steps = [self.recv(g) for g in range(len(self.groups))]
        view = self.buffers.tensors
        episodes = [episode for step in steps for episode in step.info.episodes]
        entered = [room for step in steps for room in step.info.entered]
        info = StepInfo(view["truncated"], view.get("final_obs"), view["room"], view["lives"], episodes, entered)
        return Step(view["obs"], view["reward"], torch.cat([step.done for step in steps]), info)

    def play(self, actions_TN: np.ndarray, obs_TNX: Tensor, rewards_TN: Tensor) -> None:
        """T steps of all environments, open loop: with actions that do not depend on the observations. Writes
        observations and rewards. Episode statistics are not kept: the next call must be `reset`, or `play`."""
        self._play(actions_TN, obs_TNX.numpy(), rewards_TN.numpy())

    def state_dict(self) -> dict[str, np.ndarray]:
        """Everything that a restored run needs to continue exactly, as plain arrays. Called between steps."""
        rooms = [np.array(sorted(r), np.int32) for r in self._rooms]
        state: Arrays = {
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "room": self._room.copy(),
            "rooms": np.concatenate(rooms) if rooms else np.zeros(0, np.int32),
            "rooms_count": np.array([len(r) for r in rooms], np.int64),
        }
        state |= {f"buffer.{name}": array.copy() for name, array in self.buffers.arrays.items()}
        return state | {f"env.{name}": array for name, array in self._save().items()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        self._room[:] = state["room"]
        self._rooms = [set(rooms.tolist()) for rooms in _split(state, "rooms", "ragged")]
        for name, array in self.buffers.arrays.items():
            array[...] = state[f"buffer.{name}"]
        saved = {name.removeprefix("env."): array for name, array in state.items() if name.startswith("env.")}
        if not self._state_layout().keys() <= saved.keys():
            raise UserError(f"the environments were not saved by {self.spec.backend}; resume with those of that run")
        self.restarted = set()
        self._load(saved)

    def reshard(self, states: list[Arrays], world: int) -> list[Arrays]:
        """The states of `world` ranks from those of another number of ranks; environments stay in order."""
        if len(states) == world:
            return states
        names = dict.fromkeys(name for state in states for name in state)
        arrays = ("returns", "lengths", "room", "rooms_count", *(name for name in names if name.startswith("buffer.")))
        layout: dict[str, Rows] = {f"env.{name}": kind for name, kind in self._state_layout().items()}
        layout |= dict.fromkeys(arrays, "array")
        layout["rooms"] = "ragged"
        unknown = sorted(names.keys() - layout)
        if unknown:
            raise RunError(
                f"the saved environments have an entry {unknown[0]} that {self.spec.backend} cannot split among ranks; "
                "resume with the backend and the number of ranks that saved them"
            )
        rows = {name: [row for state in states for row in _split(state, name, layout[name])] for name in names}
        size = len(rows["returns"]) // world
        shares = [slice(rank * size, (rank + 1) * size) for rank in range(world)]
        return [{name: _merge(found[share], layout[name]) for name, found in rows.items()} for share in shares]

    # --- episode statistics ----------------------------------------------------------------------

    def _update_episodes(self, rows: slice, done: np.ndarray) -> tuple[list[Episode], list[int]]:
        """Add the step to the episodes of `rows`; returns the episodes that ended and the rooms entered."""
        self._returns[rows] += self.buffers["reward"][rows]
        self._lengths[rows] += 1
        episodes: list[Episode] = []
        entered: list[int] = []
        moved = self.buffers["room"][rows] != self._room[rows]
        for i in (np.flatnonzero(done | moved) + rows.start).tolist():
            if done[i - rows.start]:
                entered += self._enter_room(i, "final_room")
                ended = Episode(i, float(self._returns[i]), int(self._lengths[i]), frozenset(self._rooms[i]))
                episodes += [] if i in self.restarted else [ended]
                self.restarted.discard(i)
                self._returns[i], self._lengths[i], self._room[i], self._rooms[i] = 0.0, 0, -1, set()
            entered += self._enter_room(i, "room")
        return episodes, entered

    def _enter_room(self, i: int, name: str) -> list[int]:
        """Reads the room of environment `i` from this buffer. Returns it if the environment has just entered it."""
        room = int(self.buffers[name][i])
        if room in (-1, self._room[i]):
            return []
        self._room[i] = room
        self._rooms[i].add(room)
        return [room]


def _split(state: Arrays, name: str, kind: Rows) -> list[Any]:
    """An array of a saved state, one item per environment."""
    if kind == "packed":
        return unpack_bytes(state[name].tobytes())
    if kind == "ragged":
        return np.split(state[name], np.cumsum(state[f"{name}_count"])[:-1])
    return [state[name]] * len(state["returns"]) if kind == "shared" else list(state[name])


def _merge(items: list[Any], kind: Rows) -> np.ndarray:
    """The inverse of `_split`."""
    if kind == "packed":
        return np.frombuffer(pack_bytes(items), np.uint8)
    if kind == "ragged":
        return np.concatenate(items)
    return np.array(max(items)) if kind == "shared" else np.stack(items)
