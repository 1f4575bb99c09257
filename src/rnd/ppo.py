"""PPO's loss and update (appendix): four epochs of four minibatches, one Adam for policy and predictor.

Legend: T steps, n environments of a minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from rnd import actions as act
from rnd.bonus.contract import Bonus
from rnd.config import Config
from rnd.distributed import ALONE, Ranks
from rnd.envs.spec import ActionSpec
from rnd.errors import RunError
from rnd.fast import Mark, Replay, arithmetic, compiled, filed
from rnd.networks import Policy, PolicyOutput
from rnd.returns import Targets
from rnd.transitions import Rollout, Transitions


@dataclass(frozen=True)
class Batch:
    """What the update reads: a rollout with its targets, or some environments of it."""

    transitions: Transitions
    logp_TN: Tensor
    first_TN: Tensor
    hidden_NH: Tensor
    targets: Targets
    bonus_targets: Tensor
    keep_TN: Tensor
    """Which transitions train the predictor."""
    weight_N: Tensor
    """Of the predictor's loss: kept transitions here over those of the average rank, the same in a whole minibatch."""

    @staticmethod
    def of(rollout: Rollout, targets: Targets, bonus_targets: Tensor) -> Batch:
        keep_TN = torch.zeros_like(rollout.logp_TN, dtype=torch.bool)
        weight_N = torch.ones_like(rollout.logp_TN[0])
        moves, first_TN, hidden_NH = rollout.transitions, rollout.first_TN, rollout.hidden_NH
        return Batch(moves, rollout.logp_TN, first_TN, hidden_NH, targets, bonus_targets, keep_TN, weight_N)

    def envs(self, rows: slice) -> Batch:
        return Batch(
            self.transitions.envs(rows),
            self.logp_TN[:, rows],
            self.first_TN[:, rows],
            self.hidden_NH[rows],
            Targets(*(x[:, rows] for x in self.targets)),
            self.bonus_targets[:, rows],
            self.keep_TN[:, rows],
            self.weight_N[rows],
        )

    def tensors(self) -> list[Tensor]:
        """What comes with a rollout; the rest is drawn in the update."""
        moves = self.transitions
        return [
            *(moves.frames, moves.age, moves.actions, self.logp_TN, self.first_TN, self.hidden_NH),
            *(*self.targets, self.bonus_targets),
        ]


def policy_loss(
    config: Config, action: ActionSpec, out: PolicyOutput, taken: Tensor, old_logp: Tensor, targets: Targets
) -> dict[str, Tensor]:
    """The parts of PPO's loss, means over the minibatch. Advantages are not normalised, values not clipped."""
    logp = act.log_prob(action, out.logits, taken)
    log_ratio = logp - old_logp
    ratio = log_ratio.exp()
    advantages = targets.advantages_TN
    clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
    value_int = (out.value_int - targets.returns_int_TN).square().mean()
    return {
        "policy_loss": torch.max(-advantages * ratio, -advantages * clipped).mean(),
        "value_ext_loss": (out.value_ext - targets.returns_ext_TN).square().mean(),
        "value_int_loss": value_int if config.value_heads == 2 else torch.zeros_like(value_int),
        "entropy": act.entropy(action, out.logits).mean(),
        "approx_kl": ((ratio - 1) - log_ratio).mean().detach(),
        "clip_share": ((ratio - 1).abs() > config.clip_range).float().mean().detach(),
    }


def minibatch_loss(config: Config, action: ActionSpec, policy: Policy, bonus: Bonus, batch: Batch) -> dict[str, Tensor]:
    """All losses of one minibatch; "loss" is what is minimised."""
    moves = batch.transitions
    out = policy.unroll(moves.obs, batch.hidden_NH, batch.first_TN)
    out = PolicyOutput(*(x.float() for x in out))
    losses = policy_loss(config, action, out, moves.actions, batch.logp_TN, batch.targets)
    losses["bonus_loss"] = bonus.loss(moves, batch.bonus_targets, batch.keep_TN, config.keep) * batch.weight_N[0]
    losses["loss"] = (
        losses["policy_loss"]
        - config.entropy_coef * losses["entropy"]
        + config.value_coef * (losses["value_ext_loss"] + losses["value_int_loss"])
        + losses["bonus_loss"]
    )
    return losses


class Learner:
    """The optimiser and the update of a rollout.

    An epoch works on fixed tensors and never waits for the host, so that on CUDA it is one captured graph. Whether
    a loss or gradient was not finite is kept on the device: the optimiser skips its step from then on, and the host
    looks once a rollout. With several ranks the epoch is not captured: gradients meet between its kernels.
    """

    def __init__(
        self,
        config: Config,
        action: ActionSpec,
        policy: Policy,
        bonus: Bonus,
        generator: Generator,
        ranks: Ranks = ALONE,
    ):
        self.config, self.action, self.policy, self.bonus, self.ranks = config, action, policy, bonus, ranks
        self.generator, self.device = generator, generator.device
        self.parameters = [p for module in (policy, bonus) for p in module.parameters() if p.requires_grad]
        cuda = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.parameters, lr=config.lr, betas=(0.9, 0.999), eps=1e-8, fused=True, capturable=cuda
        )
        self.batch: Batch | None = None
        self.sums: dict[str, Tensor] = {}
        self.not_finite = torch.zeros((), device=self.device)
        self.optimizer.found_inf = self.not_finite  # type: ignore[attr-defined]
        self._loss = compiled(minibatch_loss, config, self.device)
        self._updated = Mark(self.device)
        self._epoch = Replay(self.epoch, config, self.device) if ranks.world == 1 else self.epoch

    def update(self, rollout: Rollout, targets: Targets, bonus_targets: Tensor) -> dict[str, float]:
        """Epochs over minibatches of N / minibatches whole environments, in a fixed order."""
        config = self.config
        batch = self.batch = filed(self.batch, Batch.of(rollout, targets, bonus_targets), config, self.device)
        draws = torch.rand(config.epochs, *batch.keep_TN.shape, generator=self.generator, device=self.device)
        for total in self.sums.values():
            total.zero_()
        for draw_TN in draws:
            torch.lt(draw_TN, config.keep, out=batch.keep_TN)
            self._weigh(batch)
            self._epoch()
        self._updated.set()
        self._updated.wait()
        count = config.epochs * config.minibatches
        *sums, not_finite = torch.stack([*self.sums.values(), self.not_finite]).tolist()
        losses = {name: total / count for name, total in zip(self.sums, sums, strict=True)}
        if not_finite:
            raise NonFiniteLossError(losses)
        return losses

    def epoch(self) -> None:
        """One optimiser step a minibatch. Nothing is stepped on a loss or gradient that is not finite."""
        assert self.batch is not None
        size = self.config.env.num_envs // self.config.minibatches
        for start in range(0, self.config.env.num_envs, size):
            part = self.batch.envs(slice(start, start + size))
            with arithmetic(self.config, self.device):
                losses = self._loss(self.config, self.action, self.policy, self.bonus, part)
            self.optimizer.zero_grad(set_to_none=True)
            losses["loss"].backward()
            losses = {name: value.detach() for name, value in losses.items()}
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            self.ranks.mean_([*gradients, *losses.values()])
            norm = nn.utils.get_total_norm(gradients)
            self.not_finite.logical_or_(~torch.isfinite(norm + losses["loss"]))
            self.optimizer.step()
            for name, value in (losses | {"grad_norm": norm}).items():
                self.sums.setdefault(name, torch.zeros((), device=self.device)).add_(value)

    def _weigh(self, batch: Batch) -> None:
        """The predictor's loss is a mean over kept transitions, of which ranks have different numbers. Weighted so, the
        mean of all ranks' losses is the mean over all that are kept."""
        if self.ranks.world == 1:
            return
        kept_M = batch.keep_TN.view(len(batch.keep_TN), self.config.minibatches, -1).sum((0, 2)).float()
        average_M = kept_M.clone()
        self.ranks.mean_([average_M])
        weight_M = kept_M / average_M.clamp_min(1e-6)
        batch.weight_N.copy_(weight_M.repeat_interleave(batch.weight_N.numel() // self.config.minibatches))

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Adam's moments and step counts, by the number of the parameter. Its settings come from the config."""
        return {str(i): dict(moments) for i, moments in self.optimizer.state_dict()["state"].items()}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        moments = {
            int(i): {name: laid_out_like(self.parameters[int(i)], value) for name, value in values.items()}
            for i, values in state.items()
        }
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """`value` in the memory order of its parameter: the fused optimiser goes through both side by side."""
    if value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device, requires_grad=False).copy_(value)


class NonFiniteLossError(RunError):
    """The loss or its gradient is NaN or infinite; no step was taken."""

    def __init__(self, losses: dict[str, float]):
        values = ", ".join(f"{name} {value:g}" for name, value in losses.items())
        super().__init__(
            f"the loss or its gradient is not finite ({values}); no optimiser step was taken; try a smaller --lr"
        )
