"""What `rnd bench learner`, `start` and `train` have in common: their flags, and the config that they measure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rnd.config import Config
from rnd.config.presets import ATARI_GAMES, preset
from rnd.config.ranges import PositiveInt
from rnd.config.recipes import with_recipe
from rnd.foundation.errors import UserError, nearest


@dataclass(frozen=True)
class BenchOptions:
    """What is measured."""

    num_envs: tuple[PositiveInt, ...] = ()
    """Numbers of environments; default: 128, on a CPU 16."""
    rollout_steps: PositiveInt = 128
    """Steps per rollout."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: bool = False
    """Print JSON instead of tables."""

    def config(
        self,
        num_envs: int,
        game: str = "montezuma",
        env: dict[str, Any] | None = None,
        recipe: str = "paper",
        **changes: Any,
    ) -> Config:
        """A recipe's run of a game with what the options change."""
        paper = preset(game)
        if not paper.env.id.startswith("ALE/"):
            raise UserError(f"unknown Atari game {game}; {nearest(game, ATARI_GAMES)}")
        config = replace(
            with_recipe(paper, recipe),
            env=replace(paper.env, num_envs=num_envs, **env or {}),
            rollout_steps=self.rollout_steps,
            device=self.device,
            **changes,
        )
        try:
            config.validate()
        except UserError as error:  # its advice is for rnd train, which has these flags in a group
            raise UserError(str(error).replace("--env.", "--")) from error
        return config
