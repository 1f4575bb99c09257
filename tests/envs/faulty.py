"""Environments that go wrong on purpose, for `module:function` ids. The fault waits for the action 1."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import gymnasium
import numpy as np


class Faulty(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault: str):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2), {}

    def step(self, action):
        obs, reward = self.np_random.uniform(-1, 1, 2), 0.0
        if action == 1:
            match self.fault:
                case "raise":
                    raise ValueError("the treasure is cursed")
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    time.sleep(3600)
                case "hang in C":
                    # PyDLL keeps the interpreter's lock, as a C extension in an endless loop would.
                    ctypes.PyDLL(None).sleep(3600)
                case "nan reward":
                    reward = float("nan")
                case "inf observation":
                    obs[1] = np.inf
        return obs, reward, False, False, {}


def make_raise():
    return Faulty("raise")


def make_kill():
    return Faulty("kill")


def make_hang():
    return Faulty("hang")


def make_hang_in_c():
    return Faulty("hang in C")


def make_nan_reward():
    return Faulty("nan reward")


def make_inf_observation():
    return Faulty("inf observation")


def make_broken():
    raise OSError("no display")
