"""The learning curves of benchmarks/image_tasks.py, from rows that were stored."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def image_tasks(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    module = importlib.import_module("image_tasks")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "rows.csv")
    monkeypatch.setattr(module, "IMAGE", tmp_path / "curves.png")
    return module


def rows(bonus, seed, returns):
    names = {"task": "crafter", "bonus": bonus, "seed": seed}
    return [names | {"frames": 1000 * i, "return_mean": x, "return_best": 9.0} for i, x in enumerate(returns, 1)]


def test_a_stored_run_is_drawn_and_not_done_again(image_tasks, monkeypatch, capsys):
    image_tasks.append(rows("noveld", 1, [0.0, 2.5]))
    image_tasks.append(rows("none", 1, [0.0, 1.25]))
    flags = ["--tasks", "crafter", "--seeds", "1"]
    monkeypatch.setattr("sys.argv", ["image_tasks.py", *flags])
    image_tasks.main()
    table = capsys.readouterr().out
    assert "| Crafter, with its inventory | 40,000 | NovelD | 2.50 |" in table and "| no bonus | 1.25 |" in table
    assert image_tasks.IMAGE.stat().st_size > 1000
    assert image_tasks.curves(image_tasks.read(), "crafter", "noveld") == {1: ([1000, 2000], [0.0, 2.5])}


def test_procgen_tells_the_last_observation_before_an_end(image_tasks):
    """Its own step resets at once: the observation after an end is of another episode."""

    class Game:
        step = 0

        def act(self, action):
            self.step += 1

        def observe(self):
            return np.array([1.0]), {"rgb": np.full((1, 64, 64, 3), self.step, np.uint8)}, np.array([self.step == 2])

    env = image_tasks.procgen_leaper()
    env.made = Game()
    first, _ = env.reset()
    one, two = env.step(0), env.step(0)
    assert [first.max(), one[0].max(), two[0].max()] == [0, 1, 1]
    assert [one[2], two[2]] == [False, True] and env.step(0)[0].max() == 3
