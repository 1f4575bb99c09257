"""A stream of observations that a trainer has seen, with what its bonus made of it: the reference of all plugins."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

import rnd
from rnd import envs
from rnd.config import BonusOptions
from rnd.config.presets import small
from rnd.models.policy.mlp import WidthOptions
from rnd.training.trainer import Trainer

OPTIONS = {"features": 16, "hidden": 16, "keep": 0.5}
ENVS, STEPS, ROLLOUTS = 4, 8, 52
IMAGES = "streams:Images"


class Images(gymnasium.Env):
    """A bright bar that moves over a grey frame; episodes of 7 steps."""

    observation_space = spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, int(self.np_random.integers(80))
        return self._picture(), {}

    def step(self, action):
        self.t, self.x = self.t + 1, (self.x + int(action) * 3 + 1) % 80
        return self._picture(), 0.0, self.t == 7, False, {}

    def _picture(self):
        frame = np.full((84, 84), 40, np.uint8)
        frame[:, self.x : self.x + 4] = 200
        return frame


@dataclass
class Recorded:
    """One rollout and the bonus after it."""

    obs: Tensor
    actions: Tensor
    next_obs: Tensor
    dones: Tensor
    raw: Tensor
    scaled: Tensor
    state: dict[str, Tensor]
    scaler: dict[str, Tensor]


@dataclass
class Stream:
    """What a trainer has seen, and the bonus with which it began."""

    space: spaces.Space
    action_space: spaces.Space
    start: dict[str, Tensor]
    rollouts: list[Recorded]
    config: rnd.config.Config

    def bonus(self, **changes) -> rnd.Bonus:
        """A bonus that begins as the trainer's did."""
        config = self.config
        lr = config.bonus_lr or config.lr
        arguments = {"gamma": config.gamma_int, "lr": lr, "seed": config.seed, "device": "cpu"}
        sizes = {"num_envs": config.env.num_envs, "minibatches": config.minibatches, "epochs": config.epochs}
        bonus = rnd.Bonus(
            config.bonus, self.space, action_space=self.action_space, **arguments | sizes | OPTIONS | changes
        )
        bonus.module.load_state_dict(self.start)
        return bonus


@functools.cache
def recorded(name: str, env_id: str = "CartPole-v1", rollouts: int = ROLLOUTS, num_envs: int = ENVS) -> Stream:
    """Train an agent, and record its rollouts."""
    images = env_id == IMAGES
    config = small(env_id, "image" if images else "choices")
    config = replace(
        config,
        env=replace(config.env, num_envs=num_envs),
        bonus=name,
        bonus_options=BonusOptions(**OPTIONS, random_steps=32),
        policy="mlp" if not images else "cnn",
        policy_options=config.policy_options if images else WidthOptions(16),
        rollout_steps=4 if images else STEPS,
        epochs=1 if images else 2,
        minibatches=min(2, num_envs),
        frames=num_envs * (4 if images else STEPS) * rollouts,
        seed=3,
        device="cpu",
    )
    env = envs.make(config)
    trainer = Trainer(config, env)
    for _ in trainer.random_start():
        pass
    trainer.start()
    start, found, scaled = copied(trainer.bonus), [], []
    trainer.scaler.register_forward_hook(lambda _, given, result: scaled.append((given[0].clone(), result.clone())))
    learn = trainer.learn

    def recording(rollout):
        seen = rollout.clone()
        result = learn(rollout)
        moves, steps = seen.transitions, len(seen.done_TN)
        parts = (moves.obs, moves.actions, moves.windows(1, steps + 1), seen.done_TN)
        keep = name != "count" or len(found) == rollouts - 1  # its table has 32 MB
        state = copied(trainer.bonus) if keep else {}
        found.append(Recorded(*parts, *scaled[-1], state, copied(trainer.scaler)))
        return result

    trainer.learn = recording
    for _ in trainer.train():
        pass
    env.close()
    shape = (4, 84, 84) if images else found[0].next_obs.shape[2:]
    space = spaces.Box(0, 255, shape, np.uint8) if images else spaces.Box(-np.inf, np.inf, shape, np.float32)
    return Stream(space, spaces.Discrete(3 if images else 2), start, found, trainer.config)


def copied(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_equal(module: torch.nn.Module, state: dict[str, Tensor], close: bool = False) -> None:
    """To the bit; `close`: to 1e-6. An empty state was not recorded."""
    for name, value in module.state_dict().items() if state else ():
        if close:
            torch.testing.assert_close(value, state[name], rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(value, state[name]), name
