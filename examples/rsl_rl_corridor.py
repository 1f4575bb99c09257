"""rsl_rl on a sparse task of tensors: without a bonus, with its own RND, and with this one.

python examples/rsl_rl_corridor.py --bonus rnd         # or rsl_rl, none; pip install rsl-rl-lib
"""

import argparse
import contextlib
import io

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

RND_CFG = {
    "none": None,
    "rsl_rl": {
        "num_outputs": 64,
        "predictor_hidden_dims": [256, 256],
        "target_hidden_dims": [256, 256],
        "state_normalization": True,
        "reward_normalization": True,
    },
    "rnd": {"num_outputs": 64, "hidden": 256},
}
WEIGHTS = {"none": 0.0, "rsl_rl": 0.1, "rnd": 1.0}
"""Measured with the default rates: docs/plugins.md."""


DIRECTIONS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 1.0]])
CORNERS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


class Corridor(VecEnv):
    """A corridor with three corners, and one reward at its end. No constant action gets past the second corner."""

    device, cfg, num_actions, max_episode_length, length = "cpu", {}, 2, 100, 10.0

    def __init__(self, num_envs=16, image=False, dt=1.0):
        self.num_envs, self.image = num_envs, image
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.way = torch.zeros(num_envs)
        """Along the corridor; each of its four parts has the same length."""
        self.goals = 0
        self.step_dt, self.unwrapped = dt, self

    def part(self):
        return (self.way / self.length).long().clamp_max(3)

    def get_observations(self):
        part, time = self.part(), self.episode_length_buf[:, None] / self.max_episode_length
        place = CORNERS[part] + DIRECTIONS[part] * (self.way / self.length - part)[:, None]
        groups = {"policy": place, "time": time}
        if self.image:
            bar = torch.arange(20.0)[None] < self.way[:, None] / 2
            groups["camera"] = bar.float()[:, None, None].repeat(1, 3, 16, 1)
        return TensorDict(groups, batch_size=[self.num_envs])

    def step(self, actions):
        self.way = (self.way + (actions.clamp(-1, 1) * DIRECTIONS[self.part()]).sum(1)).clamp_min(0)
        self.episode_length_buf += 1
        found = self.way >= 4 * self.length
        late = self.episode_length_buf >= self.max_episode_length
        self.goals += int(found.sum())
        done = found | late
        self.way, self.episode_length_buf = self.way * ~done, self.episode_length_buf * ~done
        return self.get_observations(), found.float(), done.long(), {"time_outs": (late & ~found).float()}


def train_cfg(bonus, weight, steps=25, hidden=64, groups=None, **rnd_options):
    model = {"class_name": "MLPModel", "hidden_dims": [hidden, hidden], "activation": "elu"}
    normal = {"class_name": "GaussianDistribution", "init_std": 1.0}
    rnd_cfg = None if RND_CFG[bonus] is None else {**RND_CFG[bonus], "weight": weight, **rnd_options}
    return {
        "num_steps_per_env": steps,
        "save_interval": 1000,
        "obs_groups": groups or {name: ["policy"] for name in ("actor", "critic", "rnd_state")},
        "actor": {**model, "distribution_cfg": normal},
        "critic": model,
        "algorithm": {"class_name": "rnd.plugins.rsl_rl:PPO" if bonus == "rnd" else "PPO", "rnd_cfg": rnd_cfg},
    }


def train(bonus, weight, seed=1, num_envs=1024, iterations=150, **rnd_options):
    """Episodes that reached the goal, per iteration."""
    torch.manual_seed(seed)
    env, goals = Corridor(num_envs), []
    with contextlib.redirect_stdout(io.StringIO()):
        runner = OnPolicyRunner(env, train_cfg(bonus, weight, **rnd_options), log_dir=None, device="cpu")
        for _ in range(iterations):
            env.goals = 0
            runner.learn(1)
            goals.append(env.goals)
    return goals


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bonus", choices=list(RND_CFG), default="rnd")
    parser.add_argument("--weight", type=float, help="of the bonus; default: 1 for rnd, 0.1 for rsl_rl")
    parser.add_argument("--learning-rate", type=float, help="of the predictor; default: 1e-4 for rnd, 1e-3 for rsl_rl")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--iterations", type=int, default=150)
    args = parser.parse_args()
    weight = WEIGHTS[args.bonus] if args.weight is None else args.weight
    rate = {} if args.learning_rate is None else {"learning_rate": args.learning_rate}
    for seed in args.seeds:
        goals = train(args.bonus, weight, seed, args.num_envs, args.iterations, **rate)
        first = next((i + 1 for i, number in enumerate(goals) if number), None)
        head = f"{args.bonus}, weight {weight:g}, learning rate {rate.get('learning_rate', 'default')}, seed {seed}"
        print(f"{head}: first goal in iteration {first}, goals in the last ten: {sum(goals[-10:]):,}", flush=True)
