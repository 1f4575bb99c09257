"""Four rooms of MiniGrid behind closed doors, in Stable-Baselines3: RNDPPO with NovelD, which rewards the first visit
of a place within an episode, or with RND.

python examples/sb3_minigrid.py
python examples/sb3_minigrid.py --bonus rnd --total-steps 400000
"""

from dataclasses import dataclass
from pathlib import Path

import gymnasium
import minigrid  # noqa: F401  registers its environments
import numpy as np
import torch
import tyro
from stable_baselines3.common.env_util import make_vec_env

from rnd.plugins.sb3 import RNDPPO

CELL = (11, 6, 3)
"""Kinds of objects, colours and states of a cell."""


@dataclass
class Args:
    env_id: str = "MiniGrid-MultiRoom-N4-S5-v1"
    bonus: str = "noveld"
    total_steps: int = 120_000
    num_envs: int = 32
    seed: int = 1
    out: str | None = None
    """file for the model: policy, optimiser and bonus"""


class OneHotCells(gymnasium.ObservationWrapper):
    """What the agent sees as 0 and 1: the numbers of MiniGrid are names, not sizes."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        height, width, _ = env.observation_space["image"].shape
        self.observation_space = gymnasium.spaces.Box(0, 1, (height * width * sum(CELL),), np.float32)

    def observation(self, observation: dict) -> np.ndarray:
        cells = observation["image"]
        parts = [np.eye(size, dtype=np.float32)[cells[..., i]] for i, size in enumerate(CELL)]
        return np.concatenate(parts, axis=-1).ravel()


def main(args: Args) -> float:
    torch.set_num_threads(1)  # small networks
    venv = make_vec_env(args.env_id, args.num_envs, seed=args.seed, wrapper_class=OneHotCells)
    model = RNDPPO(
        "MlpPolicy",
        venv,
        learning_rate=1e-3,
        n_steps=64,
        batch_size=512,
        gamma=0.99,
        clip_range=0.2,
        ent_coef=0.003,
        ext_coef=5.0,  # a reward of 1 at the end of an episode, beside a bonus in every step
        bonus=args.bonus,
        bonus_kwargs={"features": 64, "hidden": 128, "lr": 1e-3, "keep": 1.0},
        seed=args.seed,
        device="cpu",
    )
    model.learn(args.total_steps, log_interval=None)
    if args.out:
        model.save(Path(args.out))
    success = float(np.mean([episode["r"] > 0 for episode in model.ep_info_buffer]))
    episodes = len(model.ep_info_buffer)
    print(f"{args.bonus}: {success:.0%} of the last {episodes} episodes succeed after {args.total_steps:,} steps")
    return success


if __name__ == "__main__":
    main(tyro.cli(Args))
