"""The advice of a run: dense rewards, and environments that one process steps."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from helpers import tiny
from rnd import envs, run
from rnd.config.presets import preset
from rnd.metrics import hints
from rnd.metrics.episodes import EpisodeStats
from rnd.metrics.hints import EPISODES, Hints

DIFFERENT = [10.0 * i for i in range(EPISODES)]
SAME = [-200.0] * EPISODES
ONE = [*SAME[1:], 5.0]
"""One episode was lucky."""


def stats(returns, success_return=None):
    found = EpisodeStats(success_return)
    found.returns.extend(returns)
    return found


def config(env_id="CartPole-v1", **changes):
    return replace(preset(env_id), frames=1000, **changes)


@pytest.mark.parametrize(
    ("config", "episodes", "frames", "said"),
    [
        (config(), stats(DIFFERENT), 200, True),
        (config(), stats(DIFFERENT), 201, False),  # not from the start
        (config(), stats(DIFFERENT[1:]), 200, False),  # too few
        (config(), stats(SAME), 200, False),
        (config(), stats(ONE), 200, False),
        (config(bonus="none"), stats(DIFFERENT), 200, False),
        (config("Pendulum-v1"), stats(DIFFERENT), 200, False),  # its preset was chosen by results
        (config("MiniGrid-Empty-5x5-v0"), stats(DIFFERENT, 0.0), 200, False),
        (config("ALE/Breakout-v5"), stats(DIFFERENT), 200, False),
    ],
)
def test_returns_that_differ_from_the_start(config, episodes, frames, said):
    advice = Hints(config, episodes, cores=0)
    assert any("compare --bonus none" in text for text in advice.add({"frames": frames}, {})) == said
    assert advice.add({"frames": frames}, {}) == []  # once


def test_returns_that_differ_later_are_learned():
    advice = Hints(config(), episodes := stats(SAME), cores=0)
    assert advice.add({"frames": 100}, {}) == []
    episodes.returns.extend(DIFFERENT)
    assert advice.add({"frames": 200}, {}) == []


@pytest.mark.parametrize(
    ("emulation", "cores", "said"),
    [(6.0, 4, "60% of the time"), (4.0, 4, None), (6.0, 1, None), (11.0, 2, "100% of the time")],
)
def test_an_environment_that_one_process_steps(emulation, cores, said):
    advice = Hints(config(), stats([]), cores)
    row, times = {"frames": 1}, {"seconds": 10.0, "emulation": emulation}
    assert advice.add(row, times) == []  # 10 of 20 seconds
    texts = advice.add(row, times)
    assert texts == [] if said is None else said in texts[0] and f"--env.workers {cores} steps it" in texts[0]
    assert advice.add(row, times) == []


@pytest.mark.parametrize(
    ("env_id", "workers", "expected"),
    [("CartPole-v1", None, 4), ("CartPole-v1", 0, 0), ("CartPole-v1", 2, 0), ("rnd/DeepSea-4", None, 0)],
)
def test_workers_are_for_environments_of_this_process_alone(env_id, workers, expected, monkeypatch):
    monkeypatch.setattr(run, "cores", lambda: 4)
    start = tiny(env_id)
    start = replace(start, env=replace(start.env, workers=workers))
    env = envs.make(start)
    assert run.idle_cores(SimpleNamespace(config=start, env=env)) == expected
    env.close()


def test_a_run_prints_both_once(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "cores", lambda: 3)
    monkeypatch.setattr(hints, "SECONDS", 0.0)
    monkeypatch.setattr(hints, "SHARE", 0.0)
    start = tiny(iterations=10, out=str(tmp_path), device="cpu")
    run.start(start, Console(file=(said := io.StringIO()), width=200))
    assert said.getvalue().count("compare --bonus none") == 1
    assert said.getvalue().count("--env.workers 3 steps it in 3") == 1
