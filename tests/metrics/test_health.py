"""The warnings about a bonus that has collapsed or drowns the reward, and about a policy that has become certain."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from rnd import run
from rnd.bonus.rnd import RND
from rnd.config.presets import atari, preset, small
from rnd.metrics.health import WINDOW, RunHealth
from rnd.report.page import write_page
from rnd.report.runs import read_run

BONUS = {"bonus_raw": 0.1, "bonus_spread": 1.0, "bonus_share": 0.5}
HEALTHY = {**BONUS, "return_best": 0.0, "return_mean": 0.0, "entropy": 1.0, "success": None}


def warning(**changes):
    health = RunHealth({})
    for i in range(WINDOW):
        assert health.warnings() == []
        health.add(HEALTHY | {name: value[i] if isinstance(value, list) else value for name, value in changes.items()})
    (text,) = health.warnings() or [None]
    return text


OFTEN = [0.01 * (i % 7) for i in range(WINDOW)]
ONCE = [0.0] * 5 + [0.01] * (WINDOW - 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"bonus_spread": 0.01}, "collapsed: it is nearly the same in all states"),
        ({"bonus_share": 0.001}, "collapsed: it is 0.1% of the std"),
        ({"bonus_share": 0.001, "return_best": 1.0}, None),  # the task is learned: nothing is left to explore
        ({"bonus_share": 0.99}, None),  # there is no reward yet that could drown
        ({"bonus_share": 0.99, "return_best": 1.0, "return_mean": OFTEN}, "drowns the reward"),
        ({"bonus_share": 0.99, "return_best": 1.0, "return_mean": ONCE}, None),  # one episode has found it
        ({"bonus_raw": 0.0, "bonus_spread": 0.0, "bonus_share": 0.0}, None),  # no bonus at all
        ({"entropy": 2e-5, "return_best": 26.0, "return_mean": 21.0}, "the policy is certain: its entropy is 2e-05"),
        ({"entropy": 2e-5, "return_best": 26.0, "bonus_raw": 0.0}, "the policy is certain"),  # without a bonus too
        ({"entropy": 2e-5}, None),  # all episodes are the best
        ({"entropy": 2e-5, "return_best": 0.95, "return_mean": 0.93, "success": 0.99}, None),  # it is solved
        ({"entropy": 0.01, "return_best": 26.0}, None),
        ({"entropy": -3.0, "return_best": 26.0}, None),  # of continuous actions
        ({"entropy": [1.0] + [2e-5] * (WINDOW - 1), "return_best": 26.0}, None),  # not for long
    ],
)
def test_when_it_warns(changes, message):
    text = warning(**changes)
    assert text is None if message is None else message in text and "try a" in text


def test_a_resumed_run_continues_with_its_rows():
    columns = {name: [value] * WINDOW for name, value in (HEALTHY | {"bonus_spread": 0.01}).items()}
    assert "collapsed" in RunHealth(columns).warnings()[0]
    assert RunHealth({"frames": [1.0] * WINDOW}).warnings() == []  # of an earlier version


def test_both_are_named():
    changes = {"bonus_share": 0.99, "return_best": 1.0, "entropy": 2e-5}
    columns = {name: [value] * WINDOW for name, value in (HEALTHY | changes).items()} | {"return_mean": OFTEN}
    assert [text.partition(":")[0] for text in RunHealth(columns).warnings()] == [
        "the bonus drowns the reward",
        "the policy is certain",
    ]


@pytest.mark.parametrize(
    ("game", "best", "mean", "entropy"),
    [
        ("freeway", 26.0, 21.0, 1.06e-07),
        ("gravitar", 2900.0, 1115.0, 1.75),
        ("montezuma", 4600.0, 4556.0, 2.17),
        ("pitfall", 0.0, -0.24, 2.79),
    ],
)
def test_the_policy_of_freeway_is_named(game, best, mean, entropy):
    """The last rows of four runs of 200 million frames and more: that of Freeway goes up and does nothing else."""
    row = HEALTHY | {"return_best": best, "return_mean": mean, "entropy": entropy}
    texts = RunHealth({name: [value] * WINDOW for name, value in row.items()}).warnings()
    assert [text.partition(":")[0] for text in texts] == ["the policy is certain"] * (game == "freeway")


def test_a_collapsed_bonus_is_named_in_run_and_report(tmp_path, monkeypatch):
    """A bonus that is the same everywhere, in a task whose episodes all return -200."""
    monkeypatch.setattr(RND, "score", lambda self, moves: torch.full(moves.actions.shape[:2], 0.1))
    config = replace(small("MountainCar-v0"), bonus="rnd")
    config = replace(config, env=replace(config.env, num_envs=4), rollout_steps=16, epochs=1, out=str(tmp_path))
    said = io.StringIO()
    folder = run.start(replace(config, frames=64 * (WINDOW + 2), device="cpu"), Console(file=said, width=200))
    assert said.getvalue().count("warning: the bonus has collapsed") == 1
    during, _, after = said.getvalue().partition("finished: ")
    assert "no reward yet" in during.replace("\n", " ") and "no reward yet" in after.replace("\n", " ")
    page = tmp_path / "page.html"
    write_page([read_run(folder.path)], page)
    assert "the bonus has collapsed" in page.read_text() and "Spread of the bonus" in page.read_text()


def test_a_run_of_more_rows_than_a_table_may_have_ends_well(tmp_path, monkeypatch):
    """Its own advice needs no table: nothing of it is read again."""
    monkeypatch.setattr("rnd.metrics.metrics.MAX_CELLS", 100)
    config = replace(small("MountainCar-v0"), rollout_steps=16, epochs=1, out=str(tmp_path), device="cpu")
    config = replace(config, env=replace(config.env, num_envs=4), frames=64 * 8)
    run.start(config, Console(file=(said := io.StringIO()), width=200))
    assert "finished: " in said.getvalue()


ZERO = {"frames": 30_000, "return_best": 0.0, "return_mean": 0.0, "length_mean": 300.0}
SHORT = replace(small("MountainCar-v0"), bonus="rnd", frames=100_000)
DEEP_SEA = replace(preset("rnd/DeepSea-10"), frames=100_000)


@pytest.mark.parametrize(
    ("row", "config", "said"),
    [
        (ZERO, SHORT, ["no reward yet: after 30,000 frames", "try --bonus noveld", "--gamma-int 0.997", "520,000"]),
        (ZERO | {"frames": 24_000}, SHORT, []),  # less than a quarter of the frames
        (ZERO | {"return_best": -200.0, "return_mean": -200.0}, SHORT, ["no episode has returned more than -200"]),
        (ZERO | {"return_best": 1.0}, SHORT, ["the reward is not learned: it was found (best return 1)"]),
        (ZERO | {"return_best": 1.0, "return_mean": 0.3}, SHORT, []),
        (ZERO | {"return_best": 500.0, "return_mean": 500.0}, SHORT, []),  # as good as it gets
        (ZERO, replace(SHORT, bonus="none"), ["try --bonus noveld"]),  # the first choice for the task
        (ZERO, replace(SHORT, bonus="noveld"), ["try --bonus rnd"]),
        (ZERO, replace(SHORT, bonus="e3b"), ["try --bonus noveld"]),
        (ZERO, replace(DEEP_SEA, bonus="none"), ["try --bonus rnd (novelty)"]),
        (ZERO, DEEP_SEA, ["try --bonus noveld"]),
        (ZERO, replace(DEEP_SEA, overlap=True), ["try --overlap-refresh epoch", "; --bonus noveld"]),
        (ZERO, replace(DEEP_SEA, overlap=True, overlap_refresh="epoch"), ["try --bonus noveld"]),
        (ZERO | {"frames": 1e9}, atari("ALE/Pitfall-v5"), ["more frames"]),
        (ZERO, None, []),
    ],
)
def test_a_run_without_rewards_says_what_to_try(row, config, said):
    text = "".join(RunHealth({name: [value] for name, value in row.items()}, config).warnings())
    assert bool(text) == bool(said) and all(part in text for part in said)
