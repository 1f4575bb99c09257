"""A vector environment of Gymnasium, made by a user's factory, with the trainer's interface.

Its autoreset mode is read from `metadata["autoreset_mode"]`:

- SAME_STEP is the rule of the trainer too: the observation after an end is the first of the next episode.
- DISABLED: the environments that ended are reset here, within the same step (`reset(options={"reset_mask": ...})`).
- NEXT_STEP resets in the step after the end, which ignores the action. That step is reported as the end, with reward 0:
  the last observation then is an ordinary one with no reward after it, and lengths and returns stay those of the
  environment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnd.config import Reads
from rnd.envs.encoders import WrongObservationError
from rnd.envs.gym_env import ActionTranslator, is_sparse
from rnd.envs.interface import Buffers, Rows, VectorEnv
from rnd.envs.observations import make_encoder
from rnd.envs.process_io import check_shape, user_code
from rnd.envs.spec import Arrays, EnvSpec
from rnd.envs.splitmix import environment_seed
from rnd.foundation.errors import RunError, UserError

WHO = "the vector environment"
MODES = ("SAME_STEP", "NEXT_STEP", "DISABLED")


class GymVectorEnvs(VectorEnv):
    """A `gymnasium.vector.VectorEnv`, in this process.

    Such an environment cannot be saved: on resuming, unfinished episodes end as at a time limit, and new ones start.
    """

    def __init__(self, vector: Any, env_id: str, num_envs: int, seed: int, first: int = 0, reads: Reads = "all"):
        if vector.num_envs != num_envs:
            raise UserError(
                f"{env_id} made {vector.num_envs} environments, not {num_envs}; nearest: --env.num-envs "
                f"{vector.num_envs}, or let the factory take num_envs as an argument"
            )
        self.vector, self.mode = vector, autoreset_mode(vector)
        self.seed, self.first, self.loads = seed, first, 0
        observation, self.encode = make_encoder(vector.single_observation_space, env_id, reads)
        self.to_gym = ActionTranslator(vector.single_action_space, env_id)
        spec = EnvSpec(
            id=env_id,
            observation=observation,
            action=self.to_gym.spec,
            success_return=0.0 if is_sparse(vector, env_id) else None,
            time_limits=True,
            backend=f"gymnasium vector environment, {self.mode.lower().replace('_', '-')} reset",
        )
        super().__init__(spec, num_envs, Buffers(spec, num_envs))
        self._ended = np.zeros(num_envs, bool)
        """NEXT_STEP: the environments that the next step resets."""
        self._ended_by_limit = np.zeros(num_envs, bool)
        self._restart = False

    def _reset(self) -> None:
        self._ended[:] = self._ended_by_limit[:] = False
        # Gymnasium gives environment i the seed plus i.
        with user_code(WHO):
            obs, _ = self.vector.reset(seed=(environment_seed(self.seed, self.loads) >> 33) + self.first)
        self._write(obs, "obs")

    def _send(self, group: slice) -> None:
        if self._restart:
            self._end_all()
            return
        out = self.buffers
        with user_code(WHO):
            obs, reward, terminated, truncated, info = self.vector.step(self.to_gym(out["action"]))
        for name, values in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
            check_shape(WHO, name, np.asarray(values), self.num_envs)
        truncated = np.asarray(truncated) & ~np.asarray(terminated)
        done = terminated | truncated
        if self.mode == "NEXT_STEP":
            self._end_one_step_later(obs, reward, terminated, truncated)
            return
        out["reward"][:], out["terminated"][:], out["truncated"][:] = reward, terminated, truncated
        if self.mode == "DISABLED" and done.any():
            self._write(obs, "final_obs", done)
            with user_code(WHO):
                obs, _ = self.vector.reset(options={"reset_mask": done})
        elif done.any():
            final = info.get("final_obs", info.get("final_observation"))
            for i in np.flatnonzero(done).tolist():
                self._encode(i, row_of(final, i), out["final_obs"])
        self._write(obs, "obs")

    def _end_one_step_later(self, obs: Any, reward: Any, terminated: np.ndarray, truncated: np.ndarray) -> None:
        out, ended = self.buffers, self._ended.copy()
        out["reward"][:] = np.where(ended, 0, reward)
        out["truncated"][:] = ended & self._ended_by_limit
        out["terminated"][:] = ended & ~self._ended_by_limit
        out["final_obs"][ended] = out["obs"][ended]
        self._write(obs, "obs")
        self._lengths[ended] -= 1  # the step that only resets is not part of the episode
        self._ended = (terminated | truncated) & ~ended
        self._ended_by_limit = truncated & ~ended

    def _end_all(self) -> None:
        """The first step after a restore: end the unfinished episodes as at a time limit."""
        out = self.buffers
        self._restart = False
        out["final_obs"][:] = out["obs"]
        out["reward"][:], out["terminated"][:], out["truncated"][:] = 0, False, True
        self._reset()

    def _save(self) -> Arrays:
        return {"loads": np.array(self.loads)}

    def _load(self, state: Arrays) -> None:
        self.loads = int(state["loads"]) + 1  # so that the seeds differ from those of the first start
        self._restart, self.restarted = True, set(range(self.num_envs))

    def _state_layout(self) -> dict[str, Rows]:
        return {"loads": "shared"}

    def close(self) -> None:
        self.vector.close()

    def _write(self, obs: Any, name: str, where: np.ndarray | bool = True) -> None:
        from gymnasium.vector.utils import iterate

        wanted, given = np.broadcast_to(where, self.num_envs), -1
        for given, one in enumerate(iterate(self.vector.observation_space, obs)):
            if given < self.num_envs and wanted[given]:
                self._encode(given, one, self.buffers[name])
        if given + 1 != self.num_envs:
            raise RunError(f"{WHO} returned {given + 1} observations instead of {self.num_envs}")

    def _encode(self, i: int, obs: Any, out: np.ndarray) -> None:
        try:
            self.encode(obs, out[i])
        except WrongObservationError as error:
            raise RunError(f"environment {i}: {error}, at step {self._lengths[i]} of its episode") from None


def autoreset_mode(vector: Any) -> str:
    """The name of the `AutoresetMode` that the environment declares; Gymnasium's default is NEXT_STEP."""
    mode = vector.metadata.get("autoreset_mode", "NEXT_STEP")
    name = str(getattr(mode, "name", mode)).upper()
    name = {"SAMESTEP": "SAME_STEP", "NEXTSTEP": "NEXT_STEP"}.get(name, name)
    if name not in MODES:
        raise UserError(f"unknown autoreset mode {mode!r} of a vector environment; use one of {', '.join(MODES)}")
    return name


def row_of(final: Any, i: int) -> Any:
    """Observation `i` of a batch that may be an array of objects, or a dictionary or tuple of batches."""
    if isinstance(final, dict):
        return {name: row_of(entry, i) for name, entry in final.items()}
    if isinstance(final, tuple):
        return tuple(row_of(entry, i) for entry in final)
    return final[i]
