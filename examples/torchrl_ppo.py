"""PPO in TorchRL with the bonus as a transform, two critics and two GAE modules.

    python examples/torchrl_ppo.py

The intrinsic stream is not cut where episodes end: its GAE reads a `done` that is never true.
"""

from dataclasses import dataclass

import gymnasium
import torch
import tyro
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import OneHotCategorical
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, SerialEnv, TransformedEnv
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import rnd
from rnd.plugins.torchrl import IntrinsicReward


@dataclass
class Args:
    env_id: str = "rnd/DeepSea-10"
    total_steps: int = 60_000
    num_envs: int = 16
    num_steps: int = 64
    """steps per rollout in every environment"""
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    seed: int = 1


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def main(args: Args) -> float:
    torch.manual_seed(args.seed)
    single = gymnasium.make(args.env_id)
    space, inputs, actions = single.observation_space, single.observation_space.shape[0], single.action_space.n
    bonus = rnd.Bonus(
        "rnd", space, num_envs=args.num_envs, lr=args.learning_rate, seed=args.seed, features=64, hidden=128
    )
    base = SerialEnv(args.num_envs, lambda: GymWrapper(gymnasium.make(args.env_id)))
    env = TransformedEnv(base, IntrinsicReward(bonus))

    actor = ProbabilisticActor(
        TensorDictModule(mlp(inputs, actions), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )
    critic = ValueOperator(mlp(inputs, 1), in_keys=["observation"])
    critic_int = ValueOperator(mlp(inputs, 1), in_keys=["observation"], out_keys=["state_value_int"])
    gae = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    gae_int = GAE(gamma=0.99, lmbda=0.95, value_network=critic_int)
    gae_int.set_keys(
        reward="intrinsic_reward",
        value="state_value_int",
        advantage="advantage_int",
        value_target="value_target_int",
        done="never",
        terminated="never",
    )
    loss_module = ClipPPOLoss(actor, critic, clip_epsilon=0.1, entropy_coeff=0.001, normalize_advantage=False)
    parameters = [*loss_module.parameters(), *critic_int.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=args.learning_rate)

    batch_size = args.num_envs * args.num_steps
    collector = Collector(env, actor, frames_per_batch=batch_size, total_frames=args.total_steps)
    success = 0.0
    for iteration, data in enumerate(collector, 1):
        data["next", "never"] = torch.zeros_like(data["next", "done"])
        with torch.no_grad():
            gae(data)
            gae_int(data)
        data["advantage"] = 2.0 * data["advantage"] + 1.0 * data["advantage_int"]
        info = bonus.update()  # the predictor trains on the rollout that the transform has seen
        flat = data.reshape(-1)
        for _ in range(args.epochs):
            for index in torch.randperm(batch_size).chunk(args.minibatches):
                batch = flat[index]
                losses = loss_module(batch)
                error_int = critic_int.get_submodule("module")(batch["observation"]) - batch["value_target_int"]
                loss = losses["loss_objective"] + losses["loss_entropy"]
                loss = loss + losses["loss_critic"] + 0.5 * error_int.square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        ended = data["next", "done"]
        success = float((data["next", "reward"][ended] > 0.5).float().mean()) if ended.any() else success
        if iteration % 10 == 0:
            steps = iteration * batch_size
            print(f"{steps:>8,} steps  episodes with reward {success:.2f}  bonus {info['bonus_scaled']:.4f}")
    collector.shutdown()
    return success


if __name__ == "__main__":
    main(tyro.cli(Args))
