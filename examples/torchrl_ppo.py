"""PPO in TorchRL with the bonus as a transform, two critics and two GAE modules.

    python examples/torchrl_ppo.py                          # four rooms, and a goal 44 moves away
    python examples/torchrl_ppo.py --env-id rnd/DeepSea-10 --bonus rnd

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
    env_id: str = "rnd/FourRooms"
    bonus: str = "noveld"
    """noveld: RND that rewards the first visit of a place within an episode; or rnd"""
    total_steps: int = 150_000
    num_envs: int = 8
    num_steps: int = 64
    """steps per rollout in every environment"""
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    ext_coef: float = 5.0
    seed: int = 1


class Whiten(nn.Module):
    """Observations minus their running mean, over their running standard deviation. The bonus whitens its own."""

    def __init__(self, size: int):
        super().__init__()
        self.mean, self.var, self.count = nn.Buffer(torch.zeros(size)), nn.Buffer(torch.ones(size)), 1e-4

    def update(self, obs_BX: torch.Tensor) -> None:
        count, total = len(obs_BX), self.count + len(obs_BX)
        var, mean = torch.var_mean(obs_BX, 0, correction=0)
        share = count / total
        # in place: the collector's policy shares these buffers
        self.var.lerp_(var, share).add_((mean - self.mean).square() * share * (1 - share))
        self.mean.lerp_(mean, share)
        self.count = total

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return ((obs - self.mean) / (self.var + 1e-8).sqrt()).clamp(-10, 10)


def mlp(whiten: Whiten, inputs: int, outputs: int) -> nn.Module:
    layers = nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs)
    return nn.Sequential(whiten, *layers)


def main(args: Args) -> float:
    torch.manual_seed(args.seed)
    single = gymnasium.make(args.env_id)
    space, inputs, actions = single.observation_space, single.observation_space.shape[0], single.action_space.n
    bonus = rnd.Bonus(args.bonus, space, num_envs=args.num_envs, seed=args.seed)
    base = SerialEnv(args.num_envs, lambda: GymWrapper(gymnasium.make(args.env_id)))
    env = TransformedEnv(base, IntrinsicReward(bonus))
    env.set_seed(args.seed)

    whiten = Whiten(inputs)
    actor = ProbabilisticActor(
        TensorDictModule(mlp(whiten, inputs, actions), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )
    critic = ValueOperator(mlp(whiten, inputs, 1), in_keys=["observation"])
    critic_int = ValueOperator(mlp(whiten, inputs, 1), in_keys=["observation"], out_keys=["state_value_int"])
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
    loss_module = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.01, normalize_advantage=True)
    parameters = [*loss_module.parameters(), *critic_int.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=args.learning_rate)

    batch_size = args.num_envs * args.num_steps
    collector = Collector(env, actor, frames_per_batch=batch_size, total_frames=args.total_steps)
    ends: list[bool] = []
    for iteration, data in enumerate(collector, 1):
        data["next", "never"] = torch.zeros_like(data["next", "done"])
        with torch.no_grad():
            gae(data)
            gae_int(data)
        data["advantage"] = args.ext_coef * data["advantage"] + data["advantage_int"]
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
        whiten.update(flat["next", "observation"])
        ends += (data["next", "reward"][data["next", "done"]] > 0.5).tolist()
        if iteration % 10 == 0:
            steps, success = iteration * batch_size, sum(ends[-100:]) / max(len(ends[-100:]), 1)
            print(f"{steps:>8,} steps  episodes with reward {success:.2f}  bonus {info['bonus_scaled']:.4f}")
    collector.shutdown()
    return sum(ends[-100:]) / max(len(ends[-100:]), 1)


if __name__ == "__main__":
    main(tyro.cli(Args))
