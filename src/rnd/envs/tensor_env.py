"""Environments that live on the trainer's device: N copies that take and return tensors.

Legend: N copies, X the shape of one observation, T steps.

`TensorEnv` is what a user writes, `TensorEnvs` what the trainer sees. While a rollout is collected, nothing here copies
an observation or an action to the host, or waits for the device: rewards and ends stay in a `StepLog` on the device,
and are read once per rollout. The host interface of `VectorEnv` works too, by copies, for evaluation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rnd.config import Reads
from rnd.envs.gym_env import action_spec
from rnd.envs.interface import Buffers, Episode, Rows, VectorEnv
from rnd.envs.process_io import check_shape, user_code
from rnd.envs.spaces import ObservationEncoder
from rnd.envs.spec import ActionSpec, Arrays, EnvSpec
from rnd.envs.splitmix import environment_seed
from rnd.foundation.errors import RunError, UserError

WHO = "the tensor environment"
NOT_FINITE = "reward or observation that is NaN or infinite"
CHECKED_STEPS = 8
"""Steps that are played twice to see whether a seed repeats them."""


class TensorStep(NamedTuple):
    """Result of a step of all copies; tensors on the environment's device, one row per copy."""

    obs: Any
    """[N, ...], or a dictionary of such; where an episode ended, the first observation of the next one."""
    reward: Tensor
    terminated: Tensor
    truncated: Tensor | None = None
    """Ended by a time limit; None: never."""
    final_obs: Any = None
    """As `obs`, the last observation of an episode that ended; read where `truncated`. None: values cannot be
    bootstrapped at time limits."""
    place: Tensor | None = None
    """[N] integers: the room or cell of `obs`, as `TensorEnv.places` says; -1: none."""
    final_place: Tensor | None = None
    """The room or cell where an episode ended."""


class TensorEnv(ABC):
    """N copies of an environment, stepped together on one device. Copies whose episode ends are reset in the same step.

    `step` must not synchronise with the host: no `.item()`, no `bool(tensor)`, no indexing by a mask.
    """

    num_envs: int
    observation_space: spaces.Space[Any]
    """The space of one copy: a `Box` of numbers, a uint8 image of 84x84, or a dictionary of such."""
    action_space: spaces.Space[Any]
    """The space of one copy: `Discrete`, `MultiDiscrete` or `Box`."""
    sparse = False
    """Any reward is a success."""
    places: Literal["rooms", "cells"] | None = None
    """What `TensorStep.place` is: level * 256 + room, or y * 256 + x of a grid."""

    @abstractmethod
    def reset(self, seed: int) -> Any:
        """Start all episodes; returns the first observations. All randomness until the next `reset` follows from the
        seed, a number below 2^63."""

    @abstractmethod
    def step(self, actions: Tensor) -> TensorStep:
        """Actions [N, ...]: integers (int64), or float32 within the bounds of the space."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next step depends on. Entries with N rows are divided among ranks."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state_dict` returned."""

    def close(self) -> None:
        """Free memory."""


class EncodedStep(NamedTuple):
    """A step as the policy reads it, on the device."""

    obs: Tensor
    numbers: Tensor | None
    """The vectors in `obs`; None: there are none."""
    reward: Tensor
    done: Tensor
    truncated: Tensor
    final_obs: Tensor | None
    place: Tensor
    final_place: Tensor


class StepLog:
    """What the host reads of a rollout, once: rewards, ends, places [T, N], and which observations are not finite."""

    def __init__(self, steps: int, num_envs: int, device: torch.device):
        self.reward = torch.zeros(steps, num_envs, device=device)
        self.ends = torch.zeros(3, steps, num_envs, dtype=torch.bool, device=device)
        """Whether the episode ended, whether by a limit without a final observation, and a value that is not finite."""
        self.place = torch.full((2, steps, num_envs), -1, dtype=torch.int32, device=device)
        """After the step, and at the end of the episode."""

    def write(self, t: int, step: EncodedStep) -> None:
        finite_N = torch.isfinite(step.reward)
        if step.numbers is not None:
            # the largest number tells: one pass over long observations
            finite_N = finite_N & torch.isfinite(torch.linalg.vector_norm(step.numbers.flatten(1), torch.inf, dim=1))
        lost_N = step.truncated if step.final_obs is None else torch.zeros_like(step.truncated)
        self.reward[t] = step.reward
        self.ends[:, t] = torch.stack([step.done, lost_N, ~finite_N])
        self.place[0, t], self.place[1, t] = step.place, step.final_place


class TensorEnvs(VectorEnv):
    """A `TensorEnv` with the trainer's interface."""

    def __init__(
        self,
        env: TensorEnv,
        env_id: str,
        num_envs: int,
        seed: int,
        device: torch.device,
        first: int = 0,
        reads: Reads = "all",
    ):
        if env.num_envs != num_envs:
            raise UserError(
                f"{env_id} made {env.num_envs} environments, not {num_envs}; nearest: --env.num-envs {env.num_envs}, "
                "or let the factory take num_envs as an argument"
            )
        self.env, self.device = env, device
        self.seed, self.resets = environment_seed(seed, first), 0
        self.encode = ObservationEncoder(env.observation_space, env_id, reads)
        if not self.encode.vectorised:
            raise UserError(
                f"{env_id} has observations of {env.observation_space}, which would be encoded on the host one by one; "
                "an environment on the device returns Boxes of numbers and uint8 images of 84x84"
            )
        spec = EnvSpec(
            id=env_id,
            observation=self.encode.spec,
            action=action_spec(env.action_space, env_id),
            has_rooms=env.places is not None,
            has_cells=env.places == "cells",
            success_return=0.0 if env.sparse else None,
            time_limits=True,
            backend=f"tensors on {device.type}",
        )
        self._actions = ActionTensors(env.action_space, spec.action, device)
        self._nowhere = torch.full((num_envs,), -1, dtype=torch.int32, device=device)
        self._never = torch.zeros(num_envs, dtype=torch.bool, device=device)
        super().__init__(spec, num_envs, Buffers(spec, num_envs))

    # --- on the device ---------------------------------------------------------------------------

    def step_tensors(self, actions: Tensor) -> EncodedStep:
        """One step of all copies, on the device. Statistics of episodes are not kept: `read_log` does."""
        with user_code(WHO):
            step = self.env.step(self._actions(actions))
        for name in ("reward", "terminated", "truncated", "place", "final_place"):
            check_shape(WHO, name, getattr(step, name), self.num_envs)
        truncated = self._never if step.truncated is None else step.truncated & ~step.terminated
        obs = self.encode(step.obs)
        return EncodedStep(
            obs=obs,
            numbers=self.encode.numbers(obs),
            reward=step.reward.float(),
            done=step.terminated | truncated,
            truncated=truncated,
            final_obs=None if step.final_obs is None else self.encode(step.final_obs),
            place=self._nowhere if step.place is None else step.place,
            final_place=self._nowhere if step.final_place is None else step.final_place,
        )

    def read_log(self, log: StepLog, bootstraps: bool) -> tuple[list[Episode], list[int]]:
        """The episodes that ended in a rollout, and the rooms entered; one copy to the host. `bootstraps`: values are
        continued at time limits."""
        reward_TN, ends, places = (x.cpu().numpy() for x in (log.reward, log.ends, log.place))
        done_TN, lost_TN, bad_TN = ends
        if bootstraps and lost_TN.any():
            raise RunError(
                f"{self.spec.id} ends episodes by a time limit and returns no final_obs, so that no value can be "
                "bootstrapped there; return it, or train with --no-bootstrap-truncated"
            )
        rows, episodes, entered = slice(0, self.num_envs), list[Episode](), list[int]()
        for t in range(len(reward_TN)):
            if bad_TN[t].any():
                i = int(bad_TN[t].argmax())
                raise RunError(
                    f"environment {i} returned a {NOT_FINITE} at step {int(self._lengths[i])} of its episode; "
                    "the run stops before it learns from it"
                )
            self.buffers["reward"][:] = reward_TN[t]
            self.buffers["room"][:], self.buffers["final_room"][:] = places[:, t]
            ended, rooms = self._update_episodes(rows, done_TN[t])
            episodes += ended
            entered += rooms
        return episodes, entered

    def play(self, actions_TN: np.ndarray, obs_TNX: Tensor, rewards_TN: Tensor) -> None:
        """As `VectorEnv.play`, into tensors on the device."""
        actions = torch.from_numpy(actions_TN).to(self.device)
        log = StepLog(len(actions), self.num_envs, self.device)
        for t, action_N in enumerate(actions):
            step = self.step_tensors(action_N)
            obs_TNX[t], rewards_TN[t] = step.obs, step.reward
            log.write(t, step)
        bad_N = log.ends[2].any(0)
        if bad_N.any():
            raise RunError(
                f"environment {int(bad_N.int().argmax())} returned a {NOT_FINITE} to a random agent; "
                "the run stops before it learns from it"
            )

    # --- on the host -----------------------------------------------------------------------------

    def _reset(self) -> None:
        with user_code(WHO):
            obs = self.env.reset(environment_seed(self.seed, self.resets) >> 1)
        self.resets += 1
        self.buffers.tensors["obs"].copy_(self.encode(obs))
        self.buffers["room"][:] = -1

    def _send(self, group: slice) -> None:
        step, out = self.step_tensors(self.buffers.tensors["action"].to(self.device)), self.buffers.tensors
        out["obs"].copy_(step.obs)
        out["reward"].copy_(step.reward)
        out["truncated"].copy_(step.truncated)
        out["terminated"].copy_(step.done & ~step.truncated)
        out["final_obs"].copy_(step.obs if step.final_obs is None else step.final_obs)
        out["room"].copy_(step.place)
        out["final_room"].copy_(step.final_place)

    def _repeats(self) -> bool:
        """Plays the same seed and actions twice."""
        action, seen = self.spec.action, []
        shape = (CHECKED_STEPS, self.num_envs, *action.shape)
        actions = torch.zeros(shape, dtype=torch.from_numpy(np.empty(0, action.dtype)).dtype, device=self.device)
        for _ in range(2):
            with user_code(WHO):
                first = self.encode(self.env.reset(self.seed >> 1))
            seen.append(torch.stack([first, *(self.step_tensors(action_N).obs for action_N in actions)]))
        return torch.equal(*seen)

    def _save(self) -> Arrays:
        return {"resets": np.array(self.resets)} | {
            f"state.{name}": value.cpu().numpy().copy() for name, value in self.env.state_dict().items()
        }

    def _load(self, state: Arrays) -> None:
        self.resets = int(state["resets"])
        saved = {name: value for name, value in state.items() if name.startswith("state.")}
        tensors = {name[6:]: torch.from_numpy(np.array(value)).to(self.device) for name, value in saved.items()}
        with user_code(WHO):
            self.env.load_state_dict(tensors)

    def state_dict(self) -> Arrays:
        """Without the host's buffers: training does not use them."""
        return {name: value for name, value in super().state_dict().items() if not name.startswith("buffer.")}

    def load_state_dict(self, state: Arrays) -> None:
        super().load_state_dict(state | {f"buffer.{name}": array for name, array in self.buffers.arrays.items()})

    def _state_layout(self) -> dict[str, Rows]:
        rows = {name for name, value in self.env.state_dict().items() if value.shape[:1] == (self.num_envs,)}
        layout: dict[str, Rows] = {f"state.{name}": "array" for name in rows}
        return layout | {"resets": "shared"}

    def close(self) -> None:
        self.env.close()


class ActionTensors:
    """From the trainer's actions to those of a space, on the device."""

    def __init__(self, space: Any, spec: ActionSpec, device: torch.device):
        self.shape = tuple(space.shape)
        self.start = torch.as_tensor(np.array(getattr(space, "start", 0)), device=device)
        self.shifted = bool(self.start.any())
        self.bounds = None
        if spec.kind == "continuous":
            self.bounds = tuple(torch.tensor(bound, device=device) for bound in (spec.low, spec.high))

    def __call__(self, actions: Tensor) -> Tensor:
        if self.bounds is not None:
            actions = actions.clamp(*self.bounds)
        actions = actions.reshape(len(actions), *self.shape)
        return actions + self.start if self.shifted else actions
