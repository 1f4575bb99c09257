"""A detector watches a policy and raises the alarm before the episode fails: CartPole, with a fault after 100 steps.
python examples/novelty_alarm.py --fault dead-motor
"""

from dataclasses import dataclass
from typing import Literal

import gymnasium
import numpy as np
import tyro

import rnd


@dataclass
class Args:
    fault: Literal["none", "dead-motor", "sensor-drift", "slow-reaction"] = "sensor-drift"
    episodes: int = 80  # each to fit, to calibrate and to watch
    seed: int = 4


def episode(policy: np.ndarray, seed: int, fault: str = "none") -> tuple[np.ndarray, bool]:
    """The transitions (s_t, a_t, s_t+1) of at most 300 steps, and whether the pole fell."""
    env, rows, action, fell = gymnasium.make("CartPole-v1").unwrapped, [], 0, False
    obs = env.reset(seed=seed)[0]
    while not fell and len(rows) < 300:
        late = len(rows) - 100  # steps since the fault
        env.force_mag = 0.0 if late >= 0 and fault == "dead-motor" else 10.0
        if late < 0 or late % 4 == 0 or fault != "slow-reaction":
            action = int(obs @ policy > 0)
        next_obs, _, fell, *_ = env.step(action)
        next_obs = next_obs + np.array([0, 0, 0.01 * max(late, 0) * (fault == "sensor-drift"), 0])
        rows.append([*obs, action, *next_obs])
        obs = next_obs
    return np.array(rows), bool(fell)


def train(seed: int) -> np.ndarray:
    """The one of 200 random linear policies that balances longest in ten episodes."""
    policies = np.random.default_rng(seed).normal(size=(200, 4))
    return max(policies, key=lambda policy: sum(len(episode(policy, i)[0]) for i in range(10)))


def main(args: Args) -> float:
    policy, n, before = train(args.seed), args.episodes, []
    normal = [episode(policy, 1000 + i)[0] for i in range(2 * n)]
    monitor = rnd.Novelty().fit(np.concatenate(normal[:n])).calibrate_episodes(normal[n:], window=5).monitor()
    for i in range(n):
        rows, fell = episode(policy, 2000 + i, args.fault)
        monitor.reset()
        before.append(next((len(rows) - t for t, row in enumerate(rows) if monitor.step(row)), 0))
        print(f"{len(rows)} steps, {'the pole fell' if fell else 'success'}, alarm {before[-1]} steps before the end")
    share = float(np.mean(np.array(before) > 0))
    print(f"{args.fault}: alarm in {share:.0%} of the episodes")
    return share


if __name__ == "__main__":
    main(tyro.cli(Args))
