"""PPO's loss against a few lines of numpy, the predictor's mask, and what an update may touch."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers import tiny, train_rows
from rnd import envs
from rnd.bonus.base import kept
from rnd.config import Config, EnvConfig, PolicyOptions
from rnd.envs.spec import ActionSpec
from rnd.foundation.errors import UserError
from rnd.models.policy.base import PolicyOutput
from rnd.training.ppo import LOSSES, NonFiniteLossError, policy_loss
from rnd.training.returns import Targets
from rnd.training.trainer import Trainer

ACTIONS = ActionSpec("discrete", (4,))


def test_loss_against_numpy():
    random = np.random.default_rng(0)
    logits = random.normal(size=(6, 3, 4))
    taken = random.integers(0, 4, (6, 3))
    old_logp, advantages = random.normal(-1.4, 0.3, (6, 3)), random.normal(size=(6, 3))
    values, returns = random.normal(size=(2, 6, 3)), random.normal(size=(2, 6, 3))

    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    ratio = np.exp(np.take_along_axis(log_p, taken[..., None], -1)[..., 0] - old_logp)
    surrogate = np.minimum(ratio * advantages, np.clip(ratio, 0.9, 1.1) * advantages)
    entropy = -(np.exp(log_p) * log_p).sum(-1)

    losses = policy_loss(
        Config(),
        ACTIONS,
        PolicyOutput(*map(torch.tensor, (logits, values[0], values[1]))),
        torch.tensor(taken),
        torch.tensor(old_logp),
        Targets(*map(torch.tensor, (advantages, returns[0], returns[1]))),
    )
    assert float(losses["policy_loss"]) == pytest.approx(-surrogate.mean())
    assert float(losses["entropy"]) == pytest.approx(entropy.mean())
    assert float(losses["value_ext_loss"]) == pytest.approx(((values[0] - returns[0]) ** 2).mean())
    assert float(losses["value_int_loss"]) == pytest.approx(((values[1] - returns[1]) ** 2).mean())
    assert float(losses["clip_fraction"]) == pytest.approx((np.abs(ratio - 1) > 0.1).mean())
    assert float(losses["approx_kl"]) == pytest.approx((ratio - 1 - np.log(ratio)).mean())


@pytest.mark.parametrize(("envs_", "share"), [(32, 1.0), (128, 0.25), (256, 0.125), (1024, 0.03125)])
def test_keep_probability_holds_the_predictors_batch(envs_, share):
    assert Config(env=EnvConfig(num_envs=envs_)).keep == share


def test_mask_keeps_the_stated_share_and_averages_over_it():
    random = torch.Generator().manual_seed(0)
    shares = []
    for _ in range(50):
        keep = torch.rand(128, 32, generator=random) < 0.25
        index, weight = kept(keep, 0.25)
        chosen = index[weight > 0]
        assert torch.equal(chosen.sort().values, keep.flatten().nonzero().flatten())  # none lost, none twice
        assert float(weight.sum()) == pytest.approx(1.0, rel=1e-5)
        shares.append(len(chosen) / keep.numel())
    assert np.mean(shares) == pytest.approx(0.25, abs=0.005)
    assert (
        len({kept(torch.rand(128, 32) < 0.25, 0.25, padded=True)[0].shape for _ in range(5)}) == 1
    )  # shapes do not depend on it


def test_an_empty_mask_gives_no_loss():
    _, weight = kept(torch.zeros(16, 8, dtype=torch.bool), 0.25)
    assert float(weight.sum()) == 0.0


def trainer_of(config):
    env = envs.make(config)
    trainer = Trainer(config, env)
    trainer.start()
    return trainer


def snapshot(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def changed(before, module):
    return {name for name, p in module.named_parameters() if not torch.equal(before[name], p)}


def test_an_update_moves_policy_and_predictor_but_never_the_target():
    trainer = trainer_of(tiny())
    policy, bonus = snapshot(trainer.policy), snapshot(trainer.bonus)
    for _ in trainer.train():
        pass
    assert changed(policy, trainer.policy) == set(policy)
    moved = changed(bonus, trainer.bonus)
    assert moved == {name for name in bonus if name.startswith("predictor")}


def test_one_head_leaves_the_other_alone():
    trainer = trainer_of(tiny(value_heads=1, episodic_int=True))
    before = snapshot(trainer.policy)
    for _ in trainer.train():
        pass
    assert {"value_int.weight", "value_int.bias"}.isdisjoint(changed(before, trainer.policy))


def test_a_loss_that_is_not_finite_takes_no_step():
    trainer = trainer_of(tiny())
    rows = trainer.train()
    next(rows)
    modules = trainer.policy, trainer.bonus
    before = [snapshot(module) for module in modules]
    trainer.scaler.moments.var.fill_(float("nan"))
    with pytest.raises(NonFiniteLossError, match="from there on no optimiser step was taken"):
        next(rows)
    assert not [changed(old, module) for old, module in zip(before, modules, strict=True) if changed(old, module)]


def test_a_loss_that_is_not_finite_stops_the_steps_that_follow(monkeypatch):
    """Also those of a policy that rests once it is too far from the one that acted."""
    trainer = trainer_of(tiny(target_kl=1e9, epochs=1))
    rows = trainer.train()
    next(rows)
    backward, after = trainer.learner._backward, []

    def broken(batch):
        losses = backward(batch)
        after.append(snapshot(trainer.policy))
        return losses | {"loss": losses["loss"] * (torch.nan if len(after) == 2 else 1)}

    monkeypatch.setattr(trainer.learner, "_backward", broken)
    with pytest.raises(NonFiniteLossError):
        next(rows)
    assert len(after) == 4 and changed(after[0], trainer.policy)  # the first minibatch took its step
    assert not changed(after[1], trainer.policy)


class TwoRanks:
    """One of two ranks, where the average of the numbers is 10."""

    world, is_rank0 = 2, True

    def all_mean_(self, tensors):
        for tensor in tensors:
            tensor.fill_(10)


def test_ranks_weigh_the_loss_by_what_it_is_a_mean_of():
    """E3B learns nothing from the ends of episodes."""
    trainer = trainer_of(replace(tiny(), bonus="e3b"))
    rollout = trainer.collector.collect()
    targets = Targets(*[torch.zeros_like(rollout.logp_TN)] * 3)
    batch = trainer.learner._batch(rollout, targets, torch.zeros_like(rollout.logp_TN))
    done_TN = rollout.done_TN
    assert done_TN.any()
    trainer.learner.ranks = TwoRanks()
    used = [(~done_TN[:, rows]).sum() / 10 for rows in torch.arange(8).chunk(trainer.config.minibatches)]
    assert trainer.learner._rank_weight(batch).tolist() == pytest.approx([float(x) for x in used])


def scaled(rollout, scale):
    rollout.rewards_ext_TN = rollout.rewards_ext_TN * scale
    return rollout


@pytest.mark.parametrize("trained", [False, True])
def test_without_the_extrinsic_value_head_nothing_depends_on_the_extrinsic_reward(trained):
    """With c_E = 0 alone the head still trains the shared torso, as in the authors' release."""
    results = []
    for scale in (1.0, -7.0):
        trainer = trainer_of(tiny(ext_coef=0.0, train_ext_value=trained))
        collect = trainer.collector.collect
        trainer.collector.collect = lambda collect=collect, scale=scale, **_: scaled(collect(), scale)
        for _ in trainer.train():
            pass
        results.append(snapshot(trainer.policy))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0]) == (not trained)


def test_plain_ppo_has_no_intrinsic_stream():
    """Without a bonus the intrinsic value head is never trained, and its outputs move no advantage."""
    trainer = trainer_of(tiny(bonus="none"))
    before = snapshot(trainer.policy)
    rows = list(trainer.train())
    assert all(row["value_int_loss"] == 0 for row in rows)
    assert {"value_int.weight", "value_int.bias"}.isdisjoint(changed(before, trainer.policy))


def test_reported_losses_are_means_over_all_minibatches(monkeypatch):
    """Epochs x minibatches of them, each counted once."""
    trainer, seen = trainer_of(tiny()), []
    whole = trainer.learner._backward

    def watched(batch):
        losses = whole(batch)
        seen.append({name: float(value) for name, value in losses.items()})
        return losses

    monkeypatch.setattr(trainer.learner, "_backward", watched)
    row = next(trainer.train())
    assert len(seen) == 16
    for name in seen[0]:
        assert row[name] == pytest.approx(np.mean([losses[name] for losses in seen]), rel=1e-5, abs=1e-7), name


def test_every_epoch_draws_its_own_mask(monkeypatch):
    config = tiny()
    trainer = trainer_of(replace(config, bonus_options=replace(config.bonus_options, keep=0.5)))
    masks, whole = [], trainer.learner.epoch

    def watched(batch, totals):
        masks.append(batch.keep_TN.clone())
        return whole(batch, totals)

    monkeypatch.setattr(trainer.learner, "_epoch", watched)
    next(trainer.train())
    assert len(masks) == 4 and not any(torch.equal(masks[0], mask) for mask in masks[1:])
    assert 0.3 < float(torch.stack(masks).float().mean()) < 0.7


def test_the_norm_of_the_gradient_is_clipped():
    """Adam's first step does not depend on the size of a gradient: the moments show it. Unclipped by default."""
    squares = {}
    for limit in (None, 1e6, 1e-3):
        trainer = trainer_of(tiny(max_grad_norm=limit, epochs=1, minibatches=1))
        row = next(trainer.train())
        moments = trainer.learner.optimizer.moments.values()
        squares[limit] = sum(float((m["exp_avg"] / 0.1).square().sum()) for m in moments) ** 0.5
        assert squares[limit] == pytest.approx(min(row["grad_norm"], limit or 1e9), rel=1e-3)
    assert squares[None] == squares[1e6] > 1e-2


def test_the_policy_stops_when_it_is_too_far_from_the_one_that_acted():
    """One step of two epochs of two minibatches, and again one in the next rollout. The predictor takes all."""
    trainer = trainer_of(tiny(target_kl=1e-6, epochs=2, minibatches=2, lr=1e-2, device="cpu"))
    rows, moments = trainer.train(), trainer.learner.optimizer.moments

    def steps(module):
        return {float(moments[p]["step"]) for p in module.parameters() if p.requires_grad}

    for number in (1, 2):
        next(rows)
        assert steps(trainer.policy) == {number} and steps(trainer.bonus) == {4 * number}


def test_a_bound_that_is_never_reached_changes_nothing():
    free, bounded = (train_rows(tiny(target_kl=bound)) for bound in (None, 1e9))
    assert free == bounded


def test_shuffled_minibatches_hold_every_transition_once(monkeypatch):
    """As they stand in the rollout, in another order in every epoch."""
    trainer = trainer_of(tiny(shuffle=True))
    batches, whole = [], trainer.learner.epoch

    def watched(batch, totals):
        batches.append(batch)
        return whole(batch, totals)

    monkeypatch.setattr(trainer.learner, "_epoch", watched)
    next(trainer.train())
    assert len({tuple(batch.order_MC.flatten().tolist()) for batch in batches}) == len(batches) == 4
    batch = batches[0]
    steps, number_of_envs = batch.logp_TN.shape
    assert batch.order_MC.flatten().sort().values.tolist() == list(range(steps * number_of_envs))
    for number, index in enumerate(batch.order_MC):
        picked, at = batch.minibatch(number).picked(), (index // number_of_envs, index % number_of_envs)
        pairs = [
            (picked.transitions.obs, batch.transitions.obs),
            (picked.transitions.next_obs, batch.transitions.next_obs),
            *zip(picked.targets, batch.targets, strict=True),
            *((getattr(picked, name), getattr(batch, name)) for name in ("logp_TN", "first_TN", "keep_TN")),
            (picked.bonus_targets, batch.bonus_targets),
        ]
        assert all(torch.equal(mine[0], rollout[at]) for mine, rollout in pairs)


def test_one_shuffled_minibatch_is_the_whole_rollout():
    """The order of the samples of one minibatch does not matter."""
    plain, shuffled = (
        train_rows(tiny(iterations=1, minibatches=1, epochs=1, shuffle=shuffle)) for shuffle in (False, True)
    )
    for name in ("policy_loss", "value_ext_loss", "entropy", "bonus_loss", "grad_norm"):
        assert shuffled[0][name] == pytest.approx(plain[0][name], rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("bonus", ["rnd", "dynamics", "snd-v", "snd-vic", "drnd", "noveld", "e3b", "none"])
def test_every_bonus_learns_from_shuffled_minibatches(bonus):
    rows = train_rows(replace(tiny(iterations=2, shuffle=True), bonus=bonus))
    assert all(np.isfinite([row[name] for name in LOSSES]).all() for row in rows)


def test_a_policy_with_memory_is_not_shuffled():
    with pytest.raises(UserError, match="--shuffle is for policies without memory, and gru has one; add --no-shuffle"):
        trainer_of(replace(tiny(shuffle=True), policy="gru", policy_options=PolicyOptions()))
