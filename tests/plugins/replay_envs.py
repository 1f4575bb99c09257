"""Environments that show a recorded stream of observations again, in the interfaces of other libraries."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from streams import Stream


class Frames:
    """Observations and ends of a stream, step by step. Where an episode ends, the last observation of it and the first
    of the next are the same: the trainer saw one of them."""

    def __init__(self, stream: Stream):
        self.first = stream.rollouts[0].obs[0].numpy()
        self.next_obs = np.concatenate([one.next_obs.numpy() for one in stream.rollouts])
        self.dones = np.concatenate([one.dones.numpy() for one in stream.rollouts])
        self.actions = np.concatenate([one.actions.numpy() for one in stream.rollouts])
        self.t = 0

    def step(self):
        self.t += 1
        return self.next_obs[self.t - 1].copy(), self.dones[self.t - 1].copy()


class ReplayVectorEnv(gymnasium.vector.VectorEnv):
    """Gymnasium's interface. Same-step: the observation after an end is garbage, the last one is in the infos."""

    def __init__(self, stream: Stream, mode: AutoresetMode):
        self.frames, self.num_envs = Frames(stream), stream.config.env.num_envs
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = stream.space, stream.action_space
        self.observation_space = batch_space(stream.space, self.num_envs)
        self.action_space = batch_space(stream.action_space, self.num_envs)
        self.mode, self.resetting = mode, False

    def reset(self, *, seed=None, options=None):
        return self.frames.first.copy(), {}

    def step(self, actions):
        n, infos = self.num_envs, {}
        if self.resetting:  # a step that only resets: what it shows must not count
            self.resetting = False
            return self.frames.first.copy() + 7, np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), infos
        obs, dones = self.frames.step()
        if self.mode == AutoresetMode.NEXT_STEP:
            # All environments end together, every 5 steps, so that resets are whole rows and the stream stays the same.
            dones = np.full(n, self.frames.t % 5 == 0)
            self.resetting = bool(dones.any())
        elif dones.any():
            final = np.array([None] * n, object)
            for i in np.flatnonzero(dones):
                final[i] = obs[i].copy()
            obs[dones] += 7
            infos = {"final_obs": final, "_final_obs": dones}
        return obs, np.ones(n), dones, np.zeros(n, bool), infos


class ReplayEnv(gymnasium.Env):
    """One environment. What it shows after a reset is garbage: no transition leads there."""

    def __init__(self, stream: Stream):
        self.frames = Frames(stream)
        self.observation_space, self.action_space = stream.space, stream.action_space

    def reset(self, *, seed=None, options=None):
        return self.frames.first[0] + 7, {}

    def step(self, action):
        obs, dones = self.frames.step()
        return obs[0], 1.0, bool(dones[0]), False, {}


def replay_vec_env(stream: Stream):
    """Stable-Baselines3's interface."""
    from stable_baselines3.common.vec_env import VecEnv

    class ReplayVecEnv(VecEnv):
        def __init__(self):
            self.frames = Frames(stream)
            super().__init__(stream.config.env.num_envs, stream.space, stream.action_space)

        def reset(self):
            return self.frames.first.copy()

        def step_async(self, actions):
            pass

        def step_wait(self):
            obs, dones = self.frames.step()
            infos = [{"terminal_observation": obs[i].copy()} if done else {} for i, done in enumerate(dones)]
            obs[dones] += 7
            return obs, np.ones(self.num_envs, np.float32), dones, infos

        def close(self):
            pass

        def get_attr(self, attr_name, indices=None):
            return [None] * self.num_envs

        def set_attr(self, attr_name, value, indices=None):
            pass

        def env_method(self, method_name, *args, indices=None, **kwargs):
            return [None] * self.num_envs

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * self.num_envs

    return ReplayVecEnv()
