"""The whole loop: order of the paper's steps, determinism, and a golden curve that a refactoring must reproduce."""

import copy
import csv
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers import quiet, tiny, train_rows
from rnd import envs, run
from rnd.bonus.rnd import RND
from rnd.checkpoint.export import load_agent
from rnd.config.components import resolve
from rnd.config.presets import preset
from rnd.data.transitions import CHUNK, in_chunks
from rnd.device.graphs import in_background
from rnd.envs.spec import ActionSpec
from rnd.models.policy.cnn import CNN
from rnd.training.random_agent import random_actions, random_steps
from rnd.training.trainer import Trainer

GOLDEN = Path(__file__).parents[1] / "golden" / "curve.json"


def test_the_same_seed_writes_the_same_metrics_file(tmp_path):
    files = []
    for name in ("a", "b"):
        folder = run.start(tiny(out=str(tmp_path), name=name), quiet())
        files.append((folder.path / "metrics.csv").read_bytes())
    assert files[0] == files[1]
    assert len(files[0].splitlines()) == 7
    other = run.start(tiny(out=str(tmp_path), name="c", seed=2), quiet())
    assert (other.path / "metrics.csv").read_bytes() != files[0]


def test_bf16_on_a_cpu_is_close_to_float32_and_not_the_same():
    exact, rounded = (train_rows(tiny(precision=precision, device="cpu"))[0] for precision in ("tf32", "bf16"))
    assert rounded["value_int_loss"] == pytest.approx(exact["value_int_loss"], rel=0.05)
    assert rounded["value_int_loss"] != exact["value_int_loss"]


@pytest.mark.parametrize("kernel", [3, 4])
def test_the_third_convolution_is_the_configs(kernel, tmp_path):
    """In the run, and in the agent that is read from it."""
    paper = preset("montezuma")
    env = replace(paper.env, num_envs=4, backend="ale", workers=0)
    config = replace(paper, env=env, policy_options=CNN.Options(kernel), rollout_steps=4, frames=64, device="cpu")
    path = run.start(replace(config, out=str(tmp_path), name="run"), quiet()).path
    convolutions = [x for x in load_agent(path).policy.modules() if isinstance(x, torch.nn.Conv2d)]
    assert convolutions[2].kernel_size == (kernel, kernel)


def test_golden_curve():
    """Seeded, short, on the CPU. RND_WRITE_GOLDEN=1 writes it anew, after a change that is meant to be numeric."""
    import os

    rows = train_rows(tiny("MiniGrid-MultiRoom-N2-S4-v0", "choices"))
    names = ("policy_loss", "value_ext_loss", "value_int_loss", "entropy", "bonus_loss", "bonus_raw", "bonus_scaled")
    curve = {name: [row[name] for row in rows] for name in names}
    if os.environ.get("RND_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(curve, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    for name in names:
        assert curve[name] == pytest.approx(golden[name], rel=1e-3, abs=1e-6), name


def test_order_of_an_iteration(monkeypatch):
    """Bonus with the old statistics, then the statistics, then targets and updates with the new ones."""
    config, calls = tiny(), []
    for name in ("score", "update_statistics", "targets", "loss"):
        method = getattr(RND, name)

        def note(bonus, *arguments, name=name, method=method):
            calls.append((name, float(bonus.whiten.moments.count)))
            return method(bonus, *arguments)

        monkeypatch.setattr(RND, name, note)
    trainer = Trainer(config, envs.make(config))
    trainer.start()
    next(trainer.train())
    names = [name for name, _ in calls]
    assert names == ["score", "update_statistics", "targets"] + ["loss"] * 16
    counts = dict(calls)
    assert counts["score"] == pytest.approx(1e-4)
    assert counts["targets"] == counts["loss"] == pytest.approx(8 * 32, rel=1e-3)


def test_statistics_see_every_next_observation_once():
    config = tiny()
    trainer = Trainer(config, envs.make(config))
    trainer.start()
    next(trainer.train())
    seen = trainer.collector.buffer.frames[1:].reshape(-1, 4).double()
    torch.testing.assert_close(trainer.bonus.whiten.moments.mean, seen.mean(0), rtol=1e-5, atol=1e-7)


def test_the_bonus_is_scaled_by_the_return_with_the_intrinsic_discount():
    """Against a loop over time in numpy, with two discounts that differ."""
    config = tiny(gamma_ext=0.9, gamma_int=0.5)
    trainer = Trainer(config, envs.make(config))
    trainer.start()
    rollout = trainer.collector.collect()
    bonus = trainer.bonus.score(rollout.transitions).double().numpy()
    sums, running = [], np.zeros(bonus.shape[1])
    for row in bonus:
        running = 0.5 * running + row
        sums.append(running)
    learned = trainer.learn(rollout)
    assert learned["bonus_scale"] == pytest.approx(np.std(sums), rel=1e-3)
    assert learned["bonus_scaled"] == pytest.approx(bonus.mean() / np.std(sums), rel=1e-3)
    assert learned["return_int"] == pytest.approx(running.mean() / np.std(sums), rel=1e-3)
    assert learned["bonus_max"] == pytest.approx(bonus.max())


def test_training_without_a_start_is_refused():
    config = tiny()
    trainer = Trainer(config, envs.make(config))
    with pytest.raises(AssertionError, match=r"call start\(\)"):
        next(trainer.train())


def test_the_random_start_is_at_most_a_tenth_of_the_run():
    assert random_steps(preset("montezuma")) == 6_400
    assert random_steps(replace(preset("montezuma"), frames=10 * 65_536)) == 128


def test_the_random_agent_plays_the_same_in_groups_as_step_by_step():
    """Groups take turns; actions, episodes and statistics are those of plain steps."""
    config = tiny()
    grouped = replace(config, env=replace(config.env, workers=2))
    other = Trainer(config, envs.make(config))
    with closing(envs.make(grouped)) as env:
        trainer = Trainer(grouped, env)
        assert len(env.groups) == 2
        assert [*trainer.random_start()] == [19]
    other.env.reset()
    seen = [other.env.step(random_actions(other.env, other.generators.random_agent)).obs.clone() for _ in range(19)]
    other.bonus.update_statistics(torch.stack(seen))
    for ours, plain in zip(trainer.bonus.buffers(), other.bonus.buffers(), strict=True):
        assert torch.equal(ours, plain)
    assert trainer.generators.random_agent.bit_generator.state == other.generators.random_agent.bit_generator.state


def test_random_actions_without_bounds_are_those_of_a_policy_at_its_start():
    """Statistics of states that no agent visits would be of no use."""
    low, high = (-1.0, -np.inf, 0.0, -1e6), (1.0, np.inf, np.inf, 1e6)
    spec = ActionSpec("continuous", (4,), low, high)
    env = SimpleNamespace(spec=SimpleNamespace(action=spec), num_envs=10_000)
    found = random_actions(env, np.random.default_rng(0))
    assert found.shape == (10_000, 4) and found.dtype == np.float32
    assert found.std(0) == pytest.approx([1 / np.sqrt(3), 1, 0.584, 1], rel=0.03)
    assert found[:, 2].min() == 0 and np.abs(found[:, 0]).max() <= 1


def test_compiling_ahead_changes_nothing():
    config = tiny()
    trainer = Trainer(config, envs.make(config))
    before, mode = copy.deepcopy(trainer.state_dict()), torch.random.get_rng_state()
    trainer.compile()
    flat = [torch.utils._pytree.tree_leaves(state) for state in (before, trainer.state_dict())]
    for a, b in zip(*flat, strict=True):
        assert np.array_equal(a, b) if isinstance(a, (np.ndarray, torch.Tensor)) else a == b
    assert torch.equal(mode, torch.random.get_rng_state())
    assert all(parameter.grad is None for parameter in trainer.learner.parameters)


def test_an_error_in_the_background_is_raised_where_training_starts():
    config = tiny()
    trainer = Trainer(config, envs.make(config))
    trainer.start()

    def broken() -> None:
        raise RuntimeError("no compiler")

    trainer._compiling = in_background(broken, trainer.device)
    with pytest.raises(RuntimeError, match="no compiler"):
        next(trainer.train())


def test_bonus_in_chunks_equals_the_bonus_at_once(monkeypatch):
    config = tiny()
    trainer = Trainer(config, envs.make(config))
    trainer.start()
    moves = trainer.collector.collect().transitions
    whole = trainer.bonus.score(moves)
    monkeypatch.setitem(CHUNK, "cpu", 24)
    torch.testing.assert_close(in_chunks(trainer.bonus.score, moves), whole)


def test_the_run_folder_says_how_to_do_it_again(tmp_path):
    folder = run.start(tiny(out=str(tmp_path)), quiet())
    assert resolve(folder.config()) == resolve(tiny(out=str(tmp_path)))
    about = json.loads((folder.path / "run.json").read_text())
    assert about["packages"]["torch"] and about["command"] and "started" in about
    with (folder.path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["iteration"]) for row in rows] == list(range(1, 7))
    assert int(rows[-1]["frames"]) == 8 * 32 * 6
    assert list((folder.path / "tensorboard").iterdir())


def test_a_taken_name_is_refused_and_a_default_one_numbered(tmp_path):
    from rnd.foundation.errors import UserError

    config = tiny(out=str(tmp_path), name="x")
    run.start(config, quiet())
    with pytest.raises(UserError, match="exists already"):
        run.start(config, quiet())
    first = run.start(tiny(out=str(tmp_path)), quiet())
    second = run.start(tiny(out=str(tmp_path)), quiet())
    assert second.path.name == first.path.name + "-2"


def test_overlap_learns_from_the_rollout_before(tmp_path):
    """One iteration behind: every rollout but the first was acted by the policy of one update before."""
    rows, plain = train_rows(tiny(overlap=True)), train_rows(tiny())
    assert len(rows) == len(plain)
    for name in ("bonus_raw", "entropy", "policy_loss"):
        assert rows[0][name] == plain[0][name]  # the first rollout has no older policy
        assert rows[-1][name] != plain[-1][name]
    assert train_rows(tiny(overlap=True)) == rows


def test_timing_adds_up(tmp_path):
    folder = run.start(tiny(out=str(tmp_path)), quiet())
    with (folder.path / "timing.csv").open() as file:
        for row in csv.DictReader(file):
            parts = [float(row[name]) for name in ("emulation", "inference", "learning", "other")]
            assert all(part > 0 for part in parts)
            assert sum(parts) == pytest.approx(float(row["seconds"]))


def test_a_state_holds_the_generators():
    """A trainer with another seed draws as the saved one would have."""
    config = tiny()
    with closing(envs.make(config)) as env, closing(envs.make(config)) as other_env:
        trainer, other = Trainer(config, env), Trainer(replace(config, seed=99), other_env)
        trainer.start()
        next(trainer.train())
        assert other.load_state_dict(copy.deepcopy(trainer.state_dict()))
        mine, others = trainer.generators, other.generators
        for one, two in ((mine.acting, others.acting), (mine.learning, others.learning)):
            assert torch.equal(torch.rand(4, generator=one), torch.rand(4, generator=two))
        assert mine.random_agent.integers(2**40) == others.random_agent.integers(2**40)


def test_the_bonus_scale_forgets_as_the_config_says():
    remembering, forgetting = (train_rows(tiny(bonus_half_life=samples)) for samples in (None, 256.0))
    scales = [[row["bonus_scale"] for row in rows] for rows in (remembering, forgetting)]
    assert scales[0][0] == pytest.approx(scales[1][0], rel=0.01) and scales[0][-1] > 1.1 * scales[1][-1]


def test_the_scale_of_the_bonus_and_its_maximum_are_those_of_the_config():
    rows = train_rows(tiny(bonus_scale=0.5, max_bonus=0.75))
    assert all(row["bonus_scale"] == 0.5 and row["bonus_scaled"] <= 0.75 for row in rows)
    assert any(row["bonus_max"] / 0.5 > 0.75 for row in rows)
    free = train_rows(tiny(bonus_scale=0.5))
    assert free[0]["bonus_scaled"] == pytest.approx(free[0]["bonus_raw"] / 0.5) and free[0] != rows[0]
