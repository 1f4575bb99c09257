"""RNDPPO: the paper's method as an algorithm of Stable-Baselines3. Two value heads, two horizons.

python examples/sb3_rndppo.py
"""

from dataclasses import dataclass
from pathlib import Path

import tyro
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from rnd.plugins.sb3 import RNDPPO


@dataclass
class Args:
    env_id: str = "rnd/DeepSea-10"
    total_steps: int = 100_000
    num_envs: int = 16
    seed: int = 1
    out: str | None = None
    """file for the model: policy, optimiser and bonus"""


def main(args: Args) -> float:
    venv = make_vec_env(args.env_id, args.num_envs, seed=args.seed)
    model = RNDPPO(
        "MlpPolicy",
        venv,
        learning_rate=1e-3,
        n_steps=64,
        batch_size=256,
        gamma=0.99,  # of the extrinsic stream
        gamma_int=0.99,
        bonus="rnd",
        bonus_kwargs={"features": 64, "hidden": 128, "lr": 1e-3},
        seed=args.seed,
    )
    model.learn(args.total_steps, log_interval=None)
    if args.out:
        model.save(Path(args.out))
        model = RNDPPO.load(Path(args.out), env=venv)  # goes on exactly: the bonus is in the file

    mean_return, _ = evaluate_policy(model, make_vec_env(args.env_id, 1), n_eval_episodes=20, deterministic=False)
    print(f"RNDPPO: mean return {mean_return:.3f} after {args.total_steps:,} steps")
    return mean_return


if __name__ == "__main__":
    main(tyro.cli(Args))
