"""The bonus in rsl_rl's own training loop. Optional: where rsl-rl-lib is installed."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import pytest
import torch

from rnd.foundation.errors import UserError

pytest.importorskip("rsl_rl")
rsl_rl = pytest.importorskip("rnd.plugins.rsl_rl")

SCHEDULE = {"mode": "linear", "initial_step": 0, "final_step": 64, "final_value": 0.0}


EXAMPLE = Path(__file__).parents[2] / "examples" / "rsl_rl_corridor.py"
spec = importlib.util.spec_from_file_location("example_rsl_rl_corridor", EXAMPLE)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
Corridor = example.Corridor


def train_cfg(rnd_cfg=None, steps=8, groups=None, name="rnd.plugins.rsl_rl:PPO"):
    cfg = example.train_cfg("none", 0.0, steps, 16, {"actor": ["policy"], "critic": ["policy"], **(groups or {})})
    return cfg | {
        "algorithm": {"class_name": name, "num_learning_epochs": 2, "num_mini_batches": 2, "rnd_cfg": rnd_cfg}
    }


def runner(env, cfg):
    torch.manual_seed(0)
    return example.OnPolicyRunner(env, copy.deepcopy(cfg), log_dir=None, device="cpu")


def networks(extension):
    return {name: value.clone() for name, value in extension.state_dict().items() if name != "_extra_state"}


def test_the_loop_trains_the_predictor_and_never_the_target():
    loop = runner(Corridor(), train_cfg({"weight": 0.5}, groups={"rnd_state": ["policy", "time"]}))
    extension = loop.alg.rnd
    assert extension.bonuses["vector"].whiten.moments.mean.shape == (3,), "both groups"
    before = networks(extension)
    loop.learn(1)
    assert float(loop.alg.intrinsic_rewards.abs().max()) == 0, "the first rollout is for the statistics"
    loop.learn(2)
    assert float(loop.alg.intrinsic_rewards.abs().max()) > 0
    after = networks(extension)
    assert all(torch.equal(value, before[name]) for name, value in after.items() if ".target." in name)
    assert all(not torch.equal(value, before[name]) for name, value in after.items() if "predictor" in name)
    assert float(extension.bonuses["vector"].whiten.moments.count) >= 3 * 8 * 16


def test_the_reward_is_the_whitened_error_over_the_std_of_its_return():
    env = Corridor(4)
    extension = rsl_rl.RandomNetworkDistillation(
        env.get_observations(), {"rnd_state": ["policy"]}, num_envs=4, weight=2.0, gamma=0.9, hidden=8, num_outputs=8
    )
    random = torch.Generator().manual_seed(0)
    rollout = torch.rand(100, 2, generator=random) * 3 + 1
    extension.update_statistics({"policy": rollout})
    bonus, carry, sums = extension.bonuses["vector"], torch.zeros(4, dtype=torch.float64), []
    mean, std = rollout.mean(0), rollout.var(0, unbiased=False).sqrt()
    for _ in range(6):
        obs = torch.rand(4, 2, generator=random) * 3 + 1
        got = extension.get_intrinsic_reward({"policy": obs})
        with torch.no_grad():
            white = ((obs - mean) / std).clamp(-5, 5)
            raw = (bonus.predictor(white) - bonus.target(white)).square().mean(1)
        carry = 0.9 * carry + raw
        sums.append(carry)
        expected = 2 * raw / torch.cat(sums).var(unbiased=False).sqrt()
        torch.testing.assert_close(got, expected.float(), rtol=2e-2, atol=1e-3)


def test_images_are_read_beside_vectors():
    env = Corridor(4, image=True)
    loop = runner(env, train_cfg({"weight": 1.0, "num_outputs": 8}, 4, {"rnd_state": ["policy", "camera"]}))
    loop.learn(2)
    assert set(loop.alg.rnd.bonuses) == {"vector", "image"}
    assert bool(torch.isfinite(loop.alg.intrinsic_rewards).all())
    assert float(loop.alg.intrinsic_rewards.abs().max()) > 0


def test_a_schedule_survives_a_resume(tmp_path):
    cfg = train_cfg({"weight": 1.0, "weight_schedule": SCHEDULE})
    one = runner(Corridor(), cfg)
    one.learn(4)
    assert one.alg.rnd.weight == pytest.approx(0.5)
    torch.save(one.alg.save(), tmp_path / "model.pt")
    two = runner(Corridor(8), cfg)
    assert two.alg.rnd.weight == 1.0
    two.alg.load(torch.load(tmp_path / "model.pt", weights_only=False), None, strict=True)
    assert two.alg.rnd.weight == pytest.approx(0.5)
    assert two.alg.rnd.scaler.carry_N.tolist() == pytest.approx([float(one.alg.rnd.scaler.carry_N.mean())] * 8)
    assert torch.equal(two.alg.rnd.scaler.moments.var, one.alg.rnd.scaler.moments.var)


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (None, [1, 1, 1, 1]),
        ({"mode": "step", "final_step": 20, "final_value": 0.2}, [1, 1, 0.2, 0.2]),
        ({"mode": "linear", "initial_step": 10, "final_step": 30, "final_value": 0.0}, [1, 1, 0.5, 0]),
    ],
)
def test_schedules_are_those_of_rsl_rl(schedule, values):
    checked = rsl_rl.checked_schedule(schedule)
    assert [rsl_rl.scheduled(1.0, checked, step) for step in (0, 10, 20, 40)] == pytest.approx(values)


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"predictor_hidden_dims": [64]}, "rnd_cfg has no predictor_hidden_dims here .* hidden is their width"),
        ({"state_normalization": False}, "always normalised"),
        ({"weight_schedule": {"mode": "lineal"}}, "unknown weight_schedule 'lineal'; nearest: linear"),
        ({"weight_schedule": {"mode": "step", "final_step": 3}}, "step needs final_value"),
    ],
)
def test_what_has_no_meaning_is_refused(cfg, message):
    with pytest.raises(UserError, match=message):
        runner(Corridor(), train_cfg({"weight": 1.0, **cfg}))


def test_the_weight_is_per_second_where_there_is_a_time_step():
    assert runner(Corridor(dt=0.02), train_cfg({"weight": 5.0})).alg.rnd.weight == pytest.approx(0.1)


@pytest.mark.parametrize(("given", "rate"), [({}, 1e-4), ({"learning_rate": 1e-3}, 1e-3)])
def test_the_predictor_learns_at_the_rate_of_the_paper_unless_another_is_given(given, rate):
    assert runner(Corridor(), train_cfg(given)).alg.rnd.optimizer.param_groups[0]["lr"] == rate


def test_without_a_bonus_it_is_rsl_rls_ppo():
    loops = [runner(Corridor(), train_cfg(name=name)) for name in ("PPO", "rnd.plugins.rsl_rl:PPO")]
    for loop in loops:
        torch.manual_seed(1)
        loop.learn(2)
    states = [loop.alg.actor.state_dict() for loop in loops]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
