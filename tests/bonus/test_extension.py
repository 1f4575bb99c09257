"""A bonus from outside the package, and every bonus inside a whole agent with dictionary observations."""

from __future__ import annotations

from contextlib import closing

import gymnasium
import numpy as np
import pytest
import torch
from bonus_cases import BONUSES

from rnd import envs
from rnd.bonus.base import BonusModule
from rnd.config import BonusOptions, Config, EnvConfig
from rnd.config.components import BONUSES as REGISTRY
from rnd.foundation.errors import UserError
from rnd.training.trainer import Trainer


class Room(gymnasium.Env):
    """A dictionary of a position, a key and a text; the episode ends after 12 steps."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Dict(
            {
                "key": gymnasium.spaces.Discrete(2),
                "place": gymnasium.spaces.Box(-1.0, 1.0, (3,)),
                "mission": gymnasium.spaces.Text(8),
            }
        )
        self.action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action):
        self.steps += 1
        return self._show(), float(action[1]), self.steps >= 12, False, {}

    def _show(self):
        place = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return {"key": self.steps % 2, "place": place, "mission": "open"}


def trained(name, iterations=3):
    """Rows of a short run, and its trainer."""
    config = Config(
        env=EnvConfig(id="test_extension:Room", num_envs=4, frame_skip=1),
        bonus_options=BonusOptions(features=16, hidden=16, random_steps=16),
        bonus=name,
        policy="mlp",
        rollout_steps=16,
        frames=16 * 4 * iterations,
        device="cpu",
    )
    config.validate()
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        list(trainer.random_start())
        trainer.start()
        return list(trainer.train()), trainer


@pytest.mark.parametrize("name", [*BONUSES])
def test_every_bonus_trains_an_agent_on_dictionaries(name):
    rows, trainer = trained(name)
    assert trainer.env.spec.observation.shape == (5,)
    assert len(rows) == 3
    for row in rows:
        assert np.isfinite(row["loss"])
        assert np.isfinite(row["bonus_scaled"])
        assert (row["bonus_raw"] > 0) == (name != "none")


class FarFromHome(BonusModule):
    """The distance from the origin: what a user might write in an afternoon."""

    def __init__(self, observation, action, config):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    @torch.no_grad()
    def score(self, transitions):
        return self.scale * transitions.next_obs.square().mean(-1)

    def loss(self, transitions, targets, keep_TN, share):
        return self.scale.square()


def test_a_bonus_from_outside_the_package():
    REGISTRY.register("far-from-home", FarFromHome)
    try:
        rows, trainer = trained("far-from-home")
    finally:
        del REGISTRY.entries["far-from-home"]
    assert isinstance(trainer.bonus, FarFromHome)
    assert all(row["bonus_raw"] > 0 for row in rows)
    assert float(trainer.bonus.scale.detach()) < 1.0, "the agent's optimiser trains it"


def test_an_unknown_bonus_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="nearest: dynamics"):
        REGISTRY.load("dynamic")
