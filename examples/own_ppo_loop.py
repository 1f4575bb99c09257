"""PPO with the bonus in one file: your own loop, our bonus.

    python examples/own_ppo_loop.py                          # four rooms, and a goal 44 moves away
    python examples/own_ppo_loop.py --env-id MiniGrid-DoorKey-5x5-v0 --total-steps 200000
    python examples/own_ppo_loop.py --env-id rnd/DeepSea-10 --bonus rnd

Everything but the bonus and the two streams is written out here, to be copied and changed.
"""

import random
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.wrappers import FlattenObservation
from torch import nn
from torch.distributions import Categorical

import rnd.envs  # registers rnd/FourRooms and rnd/DeepSea-N with Gymnasium


@dataclass
class Args:
    env_id: str = "rnd/FourRooms"
    bonus: str = "noveld"
    """noveld: RND that rewards the first visit of a place within an episode; or rnd"""
    seed: int = 1
    total_steps: int = 150_000
    num_envs: int = 8
    num_steps: int = 64
    """steps per rollout in every environment"""
    learning_rate: float = 1e-3
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.99
    """discount of the extrinsic stream"""
    gamma_int: float = 0.99
    """discount of the intrinsic stream"""
    gae_lambda: float = 0.95
    ext_coef: float = 5.0
    int_coef: float = 1.0
    clip: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    warm_up_steps: int = 128
    """steps of a random policy that initialise the observation statistics"""


def layer(inputs, outputs, gain=2**0.5):
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Whiten:
    """Observations minus their running mean, over their running standard deviation."""

    def __init__(self, size):
        self.mean, self.var, self.count = np.zeros(size), np.ones(size), 1e-4

    def update(self, obs_BX):
        delta, count, total = obs_BX.mean(0) - self.mean, len(obs_BX), self.count + len(obs_BX)
        self.var = (self.var * self.count + obs_BX.var(0) * count + delta**2 * self.count * count / total) / total
        self.mean, self.count = self.mean + delta * count / total, total

    def __call__(self, obs):
        return torch.as_tensor((obs - self.mean) / np.sqrt(self.var + 1e-8), dtype=torch.float32).clamp(-10, 10)


class Agent(nn.Module):
    """A policy and two values: one per stream."""

    def __init__(self, inputs, actions):
        super().__init__()
        self.torso = nn.Sequential(layer(inputs, 64), nn.ReLU(), layer(64, 64), nn.ReLU())
        self.actor, self.value_ext, self.value_int = layer(64, actions, 0.01), layer(64, 1, 0.01), layer(64, 1, 0.01)

    def forward(self, obs):
        x = self.torso(obs)
        return Categorical(logits=self.actor(x)), self.value_ext(x).squeeze(-1), self.value_int(x).squeeze(-1)


def make_env(env_id):
    def thunk():
        if env_id.startswith("MiniGrid-"):
            import minigrid

            env = minigrid.wrappers.ImgObsWrapper(gym.make(env_id))
        else:
            env = gym.make(env_id)
        return gym.wrappers.RecordEpisodeStatistics(FlattenObservation(env))

    return thunk


def main(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    # Same-step resets: the last observation of an episode is in the infos, and every step is a transition.
    same_step = gym.vector.AutoresetMode.SAME_STEP
    envs = gym.vector.SyncVectorEnv([make_env(args.env_id)] * args.num_envs, autoreset_mode=same_step)
    agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate)
    space, options = envs.single_observation_space, {"gamma": args.gamma_int, "seed": args.seed}
    bonus, whiten = rnd.Bonus(args.bonus, space, num_envs=args.num_envs, **options), Whiten(space.shape[0])

    obs, _ = envs.reset(seed=args.seed)
    seen = []
    for _ in range(args.warm_up_steps):
        obs, *_ = envs.step(envs.action_space.sample())
        seen.append(obs)
    bonus.warm_up(np.stack(seen))
    whiten.update(np.concatenate(seen))

    T, N = args.num_steps, args.num_envs
    obs_TN, next_obs_TN = (np.zeros((T, N, *space.shape), np.float32) for _ in range(2))
    white_TN = torch.zeros(T, N, *space.shape)
    actions_TN, logp_TN = torch.zeros(T, N, dtype=torch.long), torch.zeros(T, N)
    rewards_TN, dones_TN, limits_TN = np.zeros((T, N)), np.zeros((T, N), bool), np.zeros((T, N))
    values_ext, values_int = torch.zeros(T + 1, N), torch.zeros(T + 1, N)
    returns, start = [], time.time()

    for iteration in range(args.total_steps // (T * N)):
        # 1. a rollout
        for t in range(T):
            obs_TN[t], white_TN[t] = obs, whiten(obs)
            with torch.no_grad():
                policy, values_ext[t], values_int[t] = agent(white_TN[t])
            actions_TN[t] = policy.sample()
            logp_TN[t] = policy.log_prob(actions_TN[t])
            obs, rewards_TN[t], terminated, truncated, infos = envs.step(actions_TN[t].numpy())
            dones_TN[t], next_obs_TN[t], limits_TN[t] = terminated | truncated, obs, 0.0
            for i in np.flatnonzero(dones_TN[t]):
                next_obs_TN[t, i] = infos["final_obs"][i]
                returns.append(infos["final_info"]["episode"]["r"][i])
            if truncated.any():  # a time limit is no end: the extrinsic value continues
                with torch.no_grad():
                    limits_TN[t] = agent(whiten(next_obs_TN[t]))[1] * torch.as_tensor(truncated)
        with torch.no_grad():
            _, values_ext[T], values_int[T] = agent(whiten(obs))

        # 2. the bonus of all its transitions, and the advantages of both streams
        intrinsic_TN = bonus.observe(next_obs_TN, obs=obs_TN, done=dones_TN)  # rnd reads next_obs alone
        advantages, returns_ext, returns_int = rnd.two_streams(
            torch.as_tensor(rewards_TN, dtype=torch.float32),
            torch.as_tensor(intrinsic_TN),
            values_ext,
            values_int,
            torch.as_tensor(dones_TN),
            truncated_values=limits_TN,
            gamma_ext=args.gamma,
            gamma_int=args.gamma_int,
            gae_lambda=args.gae_lambda,
            ext_coef=args.ext_coef,
            int_coef=args.int_coef,
        )

        # 3. PPO on minibatches, and the predictor on its own
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        batch = [x.flatten(0, 1) for x in (white_TN, actions_TN, logp_TN, advantages, returns_ext, returns_int)]
        for _ in range(args.epochs):
            for index in torch.randperm(T * N).chunk(args.minibatches):
                b_obs, b_actions, b_logp, b_adv, b_ext, b_int = (x[index] for x in batch)
                policy, value_ext, value_int = agent(b_obs)
                ratio = (policy.log_prob(b_actions) - b_logp).exp()
                pg_loss = torch.max(-b_adv * ratio, -b_adv * ratio.clamp(1 - args.clip, 1 + args.clip)).mean()
                v_loss = (value_ext - b_ext).square().mean() + (value_int - b_int).square().mean()
                loss = pg_loss + args.vf_coef * v_loss - args.ent_coef * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        info = bonus.update()
        whiten.update(next_obs_TN.reshape(T * N, -1))

        steps = (iteration + 1) * T * N
        if (iteration + 1) % 10 == 0:
            speed, recent = int(steps / (time.time() - start)), np.mean(returns[-100:]) if returns else np.nan
            print(f"{steps:>9,} steps  return {recent:6.3f}  bonus {info['bonus_scaled']:.4f}  {speed:,} steps/s")
    envs.close()
    return returns


if __name__ == "__main__":
    main(tyro.cli(Args))
