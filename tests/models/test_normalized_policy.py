"""The policy reads whitened vectors: what is whitened, when the statistics change, and where they are kept."""

from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from helpers import quiet, tiny
from rnd import envs, run
from rnd.checkpoint.export import export_agent, load_agent
from rnd.config import Config
from rnd.config.presets import preset, small
from rnd.envs.spec import ActionSpec, EnvSpec, ObservationSpec
from rnd.foundation.errors import UserError
from rnd.models.policy import make_policy
from rnd.training.trainer import Trainer

SPEC = EnvSpec("test", ObservationSpec("vector", (3,), one_hot=(False, False, True)), ActionSpec("discrete", (2,)))


def policy():
    return make_policy(replace(small("test"), normalize_obs=True), SPEC)


def test_numbers_are_whitened_and_choices_are_not():
    made = policy()
    obs = torch.tensor([[0.01, 1000.0, 0.0], [0.03, 3000.0, 1.0]])
    made.update_statistics(obs.repeat(1000, 1))
    read = made.normalized(obs)
    torch.testing.assert_close(read, torch.tensor([[-1.0, -1, 0], [1, 1, 1]]), rtol=1e-3, atol=1e-3)
    assert float(made.normalized(torch.full((1, 3), 1e9))[0, 0]) == 10


def test_a_velocity_of_a_hundredth_changes_what_the_policy_does():
    """Raw, it is invisible: the outputs of a new policy differ by about as much as its inputs."""
    made, obs = policy(), torch.tensor([[0.0, 0.01, 0], [0.0, -0.01, 0]])
    made.update_statistics(obs)
    whitened, raw = (p(obs, torch.zeros(2, 0))[0].logits.detach() for p in (made, made.policy))
    assert float((whitened[0] - whitened[1]).abs().max()) > 20 * float((raw[0] - raw[1]).abs().max())


def test_statistics_change_between_iterations_only():
    """The first minibatch of an update has the ratio 1: acting and learning read the same numbers."""
    config = replace(tiny("MountainCar-v0"), epochs=1, minibatches=1)
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        for _ in trainer.random_start():
            pass
        trainer.start()
        seen = [trainer.policy.whiten.moments.mean.clone()]
        for row in trainer.train():
            assert row["approx_kl"] == pytest.approx(0, abs=1e-6)
            seen.append(trainer.policy.whiten.moments.mean.clone())
    assert float(seen[0].abs().min()) > 0, "the random agent initialises them"
    assert not any(torch.equal(a, b) for a, b in pairwise(seen))


def test_pictures_are_refused():
    image = replace(SPEC, observation=ObservationSpec("image", (84, 84)))
    with pytest.raises(UserError, match="--normalize-obs is for vectors, and test shows images"):
        make_policy(Config(normalize_obs=True), image)
    assert not preset("my:game", "image").normalize_obs


def test_an_exported_agent_reads_what_the_run_read(tmp_path):
    path = run.start(tiny("MountainCar-v0", out=str(tmp_path), name="run"), quiet()).path
    state = load_agent(path).policy.state_dict()
    assert float(state["whiten.moments.count"]) > 1000
    exported = load_agent(export_agent(path)).policy.state_dict()
    assert state.keys() == exported.keys() and all(torch.equal(state[name], exported[name]) for name in state)


def test_a_config_of_before_has_none_of_it():
    """Run folders of earlier versions are resumed as they were: the fields are not in their files."""
    data = small("CartPole-v1").to_dict()
    for name in ("normalize_obs", "normalize_reward", "normalize_adv", "bonus_lr"):
        del data[name]
    config = Config.from_dict(data)
    assert (config.normalize_obs, config.normalize_reward, config.normalize_adv, config.bonus_lr) == (
        *[False] * 3,
        None,
    )
    assert "reward_scaler" not in Trainer(config, envs.make(config)).state_dict()


def test_the_bonus_learns_at_its_own_rate():
    """A rate of almost nothing: the policy moves, the predictor does not."""
    config = tiny(bonus_lr=1e-30)
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        trainer.start()
        before = {name: p.detach().clone() for name, p in trainer.bonus.predictor.named_parameters()}
        next(trainer.train())
        assert all(
            torch.allclose(before[name], p, atol=1e-20) for name, p in trainer.bonus.predictor.named_parameters()
        )
        assert {group.lr for group in trainer.learner.optimizer.groups} == {config.lr, 1e-30}


def test_advantages_have_mean_0_and_deviation_1():
    config = tiny("MountainCar-v0")
    with closing(envs.make(config)) as env:
        trainer = Trainer(config, env)
        trainer.start()
        advantages = trainer.prepare(trainer.collector.collect()).targets.advantages_TN
    assert float(advantages.mean()) == pytest.approx(0, abs=1e-5)
    assert float(advantages.std(correction=0)) == pytest.approx(1, rel=1e-4)
