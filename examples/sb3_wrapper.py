"""Stable-Baselines3's PPO, or DQN, with the bonus added to the reward.

    python examples/sb3_wrapper.py
    python examples/sb3_wrapper.py --algorithm DQN

The quickest way to try a bonus with an algorithm of SB3. Both rewards share one value function and one discount: for
the paper's method use RNDPPO (sb3_rndppo.py).
"""

from dataclasses import dataclass
from typing import Literal

import tyro
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import rnd
from rnd.plugins.sb3 import IntrinsicRewardCallback, VecIntrinsicReward


@dataclass
class Args:
    algorithm: Literal["PPO", "DQN"] = "PPO"
    env_id: str = "rnd/DeepSea-10"
    total_steps: int = 100_000
    num_envs: int = 16
    seed: int = 1
    coef: float = 1.0
    """weight of the intrinsic reward"""
    out: str | None = None
    """folder for the saved bonus"""


def main(args: Args) -> float:
    venv = make_vec_env(args.env_id, args.num_envs, seed=args.seed)
    bonus = rnd.Bonus(
        "rnd",
        venv.observation_space,
        num_envs=args.num_envs,
        update_every=64,  # DQN has no rollouts after which the callback could update
        lr=1e-3,
        seed=args.seed,
        features=64,
        hidden=128,
    )
    venv = VecIntrinsicReward(venv, bonus, coef=args.coef)
    if args.algorithm == "PPO":
        model = PPO("MlpPolicy", venv, n_steps=64, batch_size=256, n_epochs=4, learning_rate=1e-3, seed=args.seed)
    else:
        model = DQN("MlpPolicy", venv, learning_rate=1e-3, learning_starts=1000, seed=args.seed)
    model.learn(args.total_steps, callback=IntrinsicRewardCallback(save_path=args.out), log_interval=None)

    # Evaluation sees the extrinsic reward alone: an environment without the bonus.
    mean_return, _ = evaluate_policy(model, make_vec_env(args.env_id, 1), n_eval_episodes=20, deterministic=False)
    print(f"{args.algorithm} with {bonus.name}: mean return {mean_return:.3f} after {args.total_steps:,} steps")
    return mean_return


if __name__ == "__main__":
    main(tyro.cli(Args))
