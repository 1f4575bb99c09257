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
from rnd.envs.spec import ActionSpec
from rnd.errors import RunError
from rnd.networks import Policy, PolicyOutput
from rnd.returns import Targets
from rnd.rollout import Rollout


@dataclass(frozen=True)
class Minibatch:
    """Whole environments of a rollout."""

    rollout: Rollout
    targets: Targets
    bonus_targets: Tensor
    keep_TN: Tensor
    rows: slice


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


def minibatch_loss(
    config: Config, action: ActionSpec, policy: Policy, bonus: Bonus, mb: Minibatch
) -> dict[str, Tensor]:
    """All losses of one minibatch; "loss" is what is minimised."""
    rollout, rows = mb.rollout, mb.rows
    transitions = rollout.transitions.envs(rows)
    out = policy.unroll(transitions.obs, rollout.hidden_NH[rows], rollout.first_TN[:, rows])
    targets = Targets(*(x[:, rows] for x in mb.targets))
    losses = policy_loss(config, action, out, transitions.actions, rollout.logp_TN[:, rows], targets)
    losses["bonus_loss"] = bonus.loss(transitions, mb.bonus_targets[:, rows], mb.keep_TN[:, rows], config.keep)
    losses["loss"] = (
        losses["policy_loss"]
        - config.entropy_coef * losses["entropy"]
        + config.value_coef * (losses["value_ext_loss"] + losses["value_int_loss"])
        + losses["bonus_loss"]
    )
    return losses


class Learner:
    """The optimiser and the update of a rollout."""

    def __init__(self, config: Config, action: ActionSpec, policy: Policy, bonus: Bonus, generator: Generator):
        self.config, self.action, self.policy, self.bonus = config, action, policy, bonus
        self.generator = generator
        trained = [p for module in (policy, bonus) for p in module.parameters() if p.requires_grad]
        self.parameters = trained
        self.optimizer = torch.optim.Adam(trained, lr=config.lr, betas=(0.9, 0.999), eps=1e-8)

    def update(self, rollout: Rollout, targets: Targets, bonus_targets: Tensor) -> dict[str, float]:
        """Epochs over minibatches of N / minibatches whole environments, in a fixed order."""
        config, steps = self.config, self.config.rollout_steps
        envs, size = config.env.num_envs, config.env.num_envs // config.minibatches
        draws = torch.rand(config.epochs, steps, envs, generator=self.generator, device=rollout.logp_TN.device)
        sums: dict[str, Tensor] = {}
        for epoch in range(config.epochs):
            keep_TN = draws[epoch] < config.keep
            for start in range(0, envs, size):
                mb = Minibatch(rollout, targets, bonus_targets, keep_TN, slice(start, start + size))
                losses = self.step(mb)
                sums = {name: sums.get(name, 0) + value.detach() for name, value in losses.items()}
        count = config.epochs * config.minibatches
        return {name: float(value) / count for name, value in sums.items()}

    def step(self, mb: Minibatch) -> dict[str, Tensor]:
        """One optimiser step. Nothing is stepped on a loss or gradient that is not finite."""
        losses = minibatch_loss(self.config, self.action, self.policy, self.bonus, mb)
        self.optimizer.zero_grad(set_to_none=True)
        losses["loss"].backward()
        norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        if not bool(torch.isfinite(losses["loss"]) & torch.isfinite(norm)):
            raise NonFiniteLossError(losses, norm)
        self.optimizer.step()
        return losses | {"grad_norm": norm}

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Adam's moments and step counts, by the number of the parameter. Its settings come from the config."""
        return {str(i): dict(moments) for i, moments in self.optimizer.state_dict()["state"].items()}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        moments = {int(i): dict(values) for i, values in state.items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


class NonFiniteLossError(RunError):
    """The loss or its gradient is NaN or infinite; no step was taken."""

    def __init__(self, losses: dict[str, Tensor], norm: Tensor):
        values = ", ".join(f"{name} {float(value.detach()):g}" for name, value in losses.items())
        super().__init__(
            f"the loss or its gradient is not finite (gradient norm {float(norm.detach()):g}; {values}); "
            "no optimiser step was taken; try a smaller --lr"
        )
