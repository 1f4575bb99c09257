"""PPO's loss and update (appendix): four epochs of four minibatches, one Adam for policy and predictor.

Legend: T steps, N environments, M minibatches, L losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from rnd.bonus.base import BonusModule
from rnd.config import Config
from rnd.data.transitions import Rollout, Transitions
from rnd.device.graphs import Beside, DeviceEvent, GraphedFunction, autocast, compiled
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.envs.spec import ActionSpec
from rnd.foundation.errors import RunError
from rnd.models import actions as act
from rnd.models.policy.base import Policy, PolicyOutput
from rnd.training.adam import Adam, Group, Moments
from rnd.training.returns import Targets


@dataclass(frozen=True)
class UpdateBatch:
    """What the update reads: a rollout with its targets, or a minibatch of it."""

    transitions: Transitions
    logp_TN: Tensor
    first_TN: Tensor
    hidden_NH: Tensor
    targets: Targets
    bonus_targets: Tensor
    keep_TN: Tensor
    """Which transitions train the predictor."""
    weight_M: Tensor
    """Weights of the predictor's loss per minibatch: kept transitions here over those of the average rank."""
    order_MC: Tensor | None = None
    """The transitions of every minibatch by their index in [T * N]. None: whole environments in a fixed order."""

    @staticmethod
    def of(rollout: Rollout, targets: Targets, bonus_targets: Tensor, minibatches: int) -> UpdateBatch:
        """The whole rollout. All transitions are kept until an epoch draws its mask."""
        keep_TN = torch.ones_like(rollout.logp_TN, dtype=torch.bool)
        weight_M = torch.ones(minibatches, device=keep_TN.device)
        transitions = replace(rollout.transitions, draw=torch.zeros_like(rollout.logp_TN))
        sampled = transitions, rollout.logp_TN, rollout.first_TN, rollout.hidden_NH
        return UpdateBatch(*sampled, targets, bonus_targets, keep_TN, weight_M)

    def minibatch(self, number: int) -> UpdateBatch:
        """One of them, whose transitions are still to be picked where they have an order."""
        count = len(self.weight_M)
        only = slice(number, number + 1)
        if self.order_MC is not None:
            return replace(self, weight_M=self.weight_M[only], order_MC=self.order_MC[only])
        size = self.logp_TN.shape[1] // count
        rows = slice(number * size, (number + 1) * size)
        return UpdateBatch(
            self.transitions.envs(rows),
            self.logp_TN[:, rows],
            self.first_TN[:, rows],
            self.hidden_NH[rows],
            Targets(*(x[:, rows] for x in self.targets)),
            self.bonus_targets[:, rows],
            self.keep_TN[:, rows],
            self.weight_M[only],
        )

    def picked(self) -> UpdateBatch:
        """This minibatch with the transitions of its order, which lie along the N axis of one step. A compiled loss
        reads them where they are."""
        if self.order_MC is None:
            return self
        index_C = self.order_MC.flatten()
        step_C, env_C = index_C // self.logp_TN.shape[1], index_C % self.logp_TN.shape[1]
        return UpdateBatch(
            self.transitions.pick(index_C),
            self.logp_TN[step_C, env_C][None],
            self.first_TN[step_C, env_C][None],
            self.hidden_NH[env_C],
            Targets(*(x[step_C, env_C][None] for x in self.targets)),
            self.bonus_targets[step_C, env_C][None],
            self.keep_TN[step_C, env_C][None],
            self.weight_M,
        )


LOSSES = (
    *("policy_loss", "value_ext_loss", "value_int_loss", "entropy", "approx_kl", "clip_fraction"),
    *("bonus_loss", "loss", "grad_norm"),
)
"""What an update reports: means over its minibatches."""


def policy_loss(
    config: Config, action: ActionSpec, out: PolicyOutput, taken: Tensor, old_logp: Tensor, targets: Targets
) -> dict[str, Tensor]:
    """The terms of PPO's loss, means over the minibatch. Values are not clipped."""
    logp = act.log_prob(action, out.logits, taken)
    log_ratio = logp - old_logp
    ratio = log_ratio.exp()
    advantages = targets.advantages_TN
    clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
    value_ext = (out.value_ext - targets.returns_ext_TN).square().mean()
    value_int = (out.value_int - targets.returns_int_TN).square().mean()
    return {
        "policy_loss": torch.max(-advantages * ratio, -advantages * clipped).mean(),
        "value_ext_loss": value_ext if config.train_ext_value else torch.zeros_like(value_ext),
        "value_int_loss": value_int if config.has_int_stream else torch.zeros_like(value_int),
        "entropy": act.entropy(action, out.logits).mean(),
        "approx_kl": ((ratio - 1) - log_ratio).mean().detach(),
        "clip_fraction": ((ratio - 1).abs() > config.clip_range).float().mean().detach(),
    }


def policy_losses(config: Config, action: ActionSpec, policy: Policy, batch: UpdateBatch) -> dict[str, Tensor]:
    """The policy's losses of one minibatch; "loss" is their sum as it is minimised."""
    batch = batch.picked()
    transitions = batch.transitions
    out = policy.unroll(transitions.obs, batch.hidden_NH, batch.first_TN)
    out = PolicyOutput(*(x.float() for x in out))
    losses = policy_loss(config, action, out, transitions.actions, batch.logp_TN, batch.targets)
    losses["loss"] = (
        losses["policy_loss"]
        - config.entropy_coef * losses["entropy"]
        + config.value_coef * (losses["value_ext_loss"] + losses["value_int_loss"])
    )
    return losses


def bonus_loss(config: Config, bonus: BonusModule, batch: UpdateBatch) -> Tensor:
    """The predictor's loss of one minibatch."""
    batch = batch.picked()
    return bonus.loss(batch.transitions, batch.bonus_targets, batch.keep_TN, config.keep) * batch.weight_M[0]


def add_losses(
    totals_L: Tensor, not_finite: Tensor, losses: dict[str, Tensor], norms: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """The totals of `LOSSES` with those of a minibatch added, and the norm of its gradient from those of its parts.

    Sets `not_finite` where loss or norm is not.
    """
    norm = torch.linalg.vector_norm(torch.stack(norms))
    not_finite.logical_or_(~torch.isfinite(norm + losses["loss"]))
    new = losses | {"grad_norm": norm}
    return totals_L + torch.stack([new[name] for name in LOSSES]), norm


class Learner:
    """The optimiser and the update of a rollout.

    An epoch never synchronises with the host, so that on CUDA it is one captured graph. Whether a loss or gradient was
    not finite is kept on the device: the optimiser skips its steps from then on, and the host reads it
    once per rollout. With several ranks the epoch is not captured: gradients are averaged between its kernels.
    """

    def __init__(
        self,
        config: Config,
        action: ActionSpec,
        policy: Policy,
        bonus: BonusModule,
        generator: Generator,
        ranks: Ranks = SINGLE_PROCESS,
    ):
        self.config, self.action, self.policy, self.bonus, self.ranks = config, action, policy, bonus, ranks
        self.generator, self.device = generator, generator.device
        trained = [[p for p in module.parameters() if p.requires_grad] for module in (policy, bonus)]
        self.parameters = [p for parameters in trained for p in parameters]
        rates = config.lr, config.bonus_lr or config.lr
        self.not_finite, self.policy_stops = (torch.zeros((), device=self.device) for _ in range(2))
        stops = self.not_finite if config.target_kl is None else self.policy_stops, self.not_finite
        groups = [*map(Group, trained, rates, stops)]
        if rates[0] == rates[1] and stops[0] is stops[1]:  # one launch for all
            groups = [Group(self.parameters, *groups[0][1:])]
        self.optimizer = Adam(groups)
        self._policy_losses = compiled(policy_losses, config, self.device) if policy.compilable else policy_losses
        self._bonus_loss = compiled(bonus_loss, config, self.device) if policy.compilable else bonus_loss
        self._add_losses = compiled(add_losses, config, self.device)
        self._beside = Beside(config, self.device)
        self._updated = DeviceEvent(self.device)
        self._epoch = GraphedFunction(self.epoch, config, self.device) if ranks.world == 1 else self.epoch

    def update(
        self,
        rollout: Rollout,
        targets: Targets,
        bonus_targets: Tensor,
        after_epoch: Callable[[int], None] = lambda number: None,
    ) -> dict[str, float]:
        """Epochs over minibatches of N / minibatches whole environments, in a fixed order, or with `shuffle` over all
        transitions in a random one; returns the mean losses. `after_epoch` is called with 1, 2, ... when that epoch is
        launched."""
        config, batch = self.config, self._batch(rollout, targets, bonus_targets)
        draws = torch.rand(config.epochs, *batch.keep_TN.shape, generator=self.generator, device=self.device)
        totals_L = torch.zeros(len(LOSSES), device=self.device)
        self.policy_stops.zero_()
        for number, draw_TN in enumerate(draws, 1):
            transitions = replace(batch.transitions, draw=draw_TN)
            batch = replace(batch, transitions=transitions, keep_TN=draw_TN < config.keep, order_MC=self._order(batch))
            totals_L = self._epoch(replace(batch, weight_M=self._rank_weight(batch)), totals_L)
            after_epoch(number)
        self._updated.record()
        self._updated.wait()
        count = config.epochs * config.minibatches
        *sums, not_finite = torch.cat([totals_L, self.not_finite[None]]).tolist()
        losses = {name: total / count for name, total in zip(LOSSES, sums, strict=True)}
        if not_finite:
            raise NonFiniteLossError(losses)
        return losses

    def epoch(self, batch: UpdateBatch, totals_L: Tensor) -> Tensor:
        """One optimiser step per minibatch; returns the totals with its losses added.

        Advances in place, on the device: parameters, Adam's moments, `not_finite`, which prevents every later step, and
        `policy_stops`, which prevents those of the policy until the next rollout.
        """
        for number in range(self.config.minibatches):
            losses = self._backward(batch.minibatch(number))
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            self.ranks.all_mean_([*gradients, *losses.values()])
            norms = list(torch._foreach_norm(gradients))
            totals_L, norm = self._add_losses(totals_L, self.not_finite, losses, norms)
            if self.config.target_kl is not None:
                self.policy_stops.logical_or_(losses["approx_kl"] > self.config.target_kl).logical_or_(self.not_finite)
            if self.config.max_grad_norm is not None:
                nn.utils.clip_grads_with_norm_(self.parameters, self.config.max_grad_norm, norm)
            self.optimizer.step()
        return totals_L

    def _backward(self, batch: UpdateBatch) -> dict[str, Tensor]:
        """Gradients of a minibatch; returns its losses. Policy and bonus have no parameters in common: on a GPU their
        kernels run beside each other, because those of a small minibatch do not fill it."""
        self.optimizer.zero_grad()
        with self._beside:
            with autocast(self.config, self.device):
                bonus = self._bonus_loss(self.config, self.bonus, batch)
            if bonus.requires_grad:
                bonus.backward()
        with autocast(self.config, self.device):
            losses = self._policy_losses(self.config, self.action, self.policy, batch)
        losses["loss"].backward()
        self._beside.join()
        losses = {name: value.detach() for name, value in losses.items()}
        return losses | {"bonus_loss": bonus.detach(), "loss": losses["loss"] + bonus.detach()}

    def compile(self, rollout: Rollout, targets: Targets, bonus_targets: Tensor) -> None:
        """Compile the loss and its gradient. No step is taken."""
        batch = self._batch(rollout, targets, bonus_targets)
        if self.config.shuffle:
            order_B = torch.arange(batch.logp_TN.numel(), device=self.device)
            batch = replace(batch, order_MC=order_B.view(self.config.minibatches, -1))
        self._backward(batch.minibatch(0))
        self.optimizer.zero_grad()

    def _batch(self, rollout: Rollout, targets: Targets, bonus_targets: Tensor) -> UpdateBatch:
        return UpdateBatch.of(rollout, targets, bonus_targets, self.config.minibatches)

    def _order(self, batch: UpdateBatch) -> Tensor | None:
        """A random order of all transitions [M, C], with `shuffle`."""
        if not self.config.shuffle:
            return None
        order_B = torch.randperm(batch.logp_TN.numel(), generator=self.generator, device=self.device)
        return order_B.view(self.config.minibatches, -1)

    def _rank_weight(self, batch: UpdateBatch) -> Tensor:
        """Weights [M] of the bonus's loss. It is a mean over transitions, and ranks train on different numbers of them:
        weighted so, the mean of all ranks' losses is the mean over the transitions of all."""
        if self.ranks.world == 1:
            return batch.weight_M
        minibatches = [batch.minibatch(number).picked() for number in range(len(batch.weight_M))]
        used = [self.bonus.trains_on(minibatch.transitions, minibatch.keep_TN) for minibatch in minibatches]
        number_M = torch.stack([each.sum() for each in used]).float()
        average_M = number_M.clone()
        self.ranks.all_mean_([average_M])
        return number_M / average_M.clamp_min(1e-6)

    def state_dict(self) -> dict[str, Moments]:
        """Adam's moments and step counts. Its settings come from the config."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Moments]) -> None:
        self.optimizer.load_state_dict(state)


class NonFiniteLossError(RunError):
    """The loss or its gradient is NaN or infinite; from that minibatch on no step was taken."""

    def __init__(self, losses: dict[str, float]):
        values = ", ".join(f"{name} {value:g}" for name, value in losses.items())
        super().__init__(
            f"the loss or its gradient is not finite ({values}); from there on no optimiser step was taken; "
            "try a smaller --lr"
        )
