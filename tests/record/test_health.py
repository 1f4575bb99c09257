"""The warning about a bonus that has collapsed or drowns the reward, with constructed runs."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from rnd import run
from rnd.bonus.rnd import RND
from rnd.presets import small
from rnd.record.health import WINDOW, BonusHealth
from rnd.report.page import write_page
from rnd.report.runs import read_run

HEALTHY = {"bonus_raw": 0.1, "bonus_spread": 1.0, "bonus_share": 0.5, "return_best": 0.0, "return_mean": 0.0}


def warning(**changes):
    health = BonusHealth({})
    for i in range(WINDOW):
        assert health.warning() is None
        health.add(HEALTHY | {name: value[i] if isinstance(value, list) else value for name, value in changes.items()})
    return health.warning()


OFTEN = [0.01 * (i % 7) for i in range(WINDOW)]
ONCE = [0.0] * 5 + [0.01] * (WINDOW - 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"bonus_spread": 0.01}, "collapsed: it is nearly the same in all states"),
        ({"bonus_share": 0.001}, "collapsed: it is 0.1% of the deviation"),
        ({"bonus_share": 0.001, "return_best": 1.0}, None),  # the task is learned: nothing is left to explore
        ({"bonus_share": 0.99}, None),  # there is no reward yet that could drown
        ({"bonus_share": 0.99, "return_best": 1.0, "return_mean": OFTEN}, "drowns the reward"),
        ({"bonus_share": 0.99, "return_best": 1.0, "return_mean": ONCE}, None),  # one episode has found it
        ({"bonus_raw": 0.0, "bonus_spread": 0.0, "bonus_share": 0.0}, None),  # no bonus at all
    ],
)
def test_when_it_warns(changes, message):
    text = warning(**changes)
    assert text is None if message is None else message in text and "try a" in text


def test_a_resumed_run_continues_with_its_rows():
    columns = {name: [value] * WINDOW for name, value in (HEALTHY | {"bonus_spread": 0.01}).items()}
    assert "collapsed" in BonusHealth(columns).warning()
    assert BonusHealth({"frames": [1.0] * WINDOW}).warning() is None  # of an earlier version


def test_a_collapsed_bonus_is_named_in_run_and_report(tmp_path, monkeypatch):
    """A bonus that is the same everywhere, in a task whose episodes all return -200."""
    monkeypatch.setattr(RND, "score", lambda self, moves: torch.full(moves.actions.shape[:2], 0.1))
    config = small("MountainCar-v0")
    config = replace(config, env=replace(config.env, num_envs=4), rollout_steps=16, epochs=1, out=str(tmp_path))
    said = io.StringIO()
    folder = run.start(replace(config, frames=64 * (WINDOW + 2), device="cpu"), Console(file=said, width=200))
    assert said.getvalue().count("warning: the bonus has collapsed") == 1
    page = tmp_path / "page.html"
    write_page([read_run(folder.path)], page)
    assert "the bonus has collapsed" in page.read_text() and "Spread of the bonus" in page.read_text()
