"""Speed and time left from the last half minute, and whether a run still explores."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rnd import run
from rnd.config.presets import small
from rnd.metrics import progress
from rnd.metrics.metrics import read_csv
from rnd.metrics.progress import Phase, Trend


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_the_speed_is_that_of_the_last_half_minute(clock):
    """Slow for a minute, then fast: a mean since the start would promise ten times too long."""
    with Phase(lines(), "training", 10_000) as phase:
        done = 0
        for seconds, frames in [(1, 10)] * 60 + [(1, 100)] * 40:
            clock.now += seconds
            done += frames
            phase.advance(done)
    assert phase.rate == pytest.approx(100)
    assert "100 frames/s  0:00:54 left" in phase.console.file.getvalue()


def test_what_came_before_a_restart_does_not_count(clock):
    """The first iterations compile; while they do, no speed is promised."""
    with Phase(lines(), "training", 1_000) as phase:
        phase.warming_up = "compiling"
        clock.now += 30
        phase.advance(10)
        phase.restart()
        clock.now += 1
        phase.advance(20)
        assert phase.rate == pytest.approx(10)
        clock.now += 10
        phase.advance(120)
    said = phase.console.file.getvalue().splitlines()
    assert said[0].endswith("10 / 1,000 frames  compiling") and "frames/s" in said[-1] and "compiling" not in said[-1]


def tiny(tmp_path, **changes):
    config = small("CartPole-v1")
    env = replace(config.env, num_envs=4)
    frames = 4 * 8 * 8
    return replace(
        config, env=env, rollout_steps=8, frames=frames, device="cpu", out=str(tmp_path), name="run", **changes
    )


def test_the_speed_is_measured_over_the_seconds_since_a_restart(clock):
    with Phase(lines(), "training", 1_000) as phase:
        clock.now += 30
        phase.advance(10)
        phase.restart()
        assert phase.measured_seconds == 0
        clock.now += 2
        phase.advance(20)
        assert phase.measured_seconds == pytest.approx(2)


def test_a_run_estimates_its_time_once_and_not_from_single_iterations(tmp_path, monkeypatch):
    console, seconds = lines(), iter([0.1, 2.9, 3.1, 4, 5, 6, 7, 8])
    monkeypatch.setattr(Phase, "measured_seconds", property(lambda _: next(seconds)))
    run.start(tiny(tmp_path), console)
    said = console.file.getvalue()
    assert said.count("frames left: 0:00:") == 1 and "160 frames left" in said  # 3 of 8 iterations of 32 frames


def test_a_finished_run_estimates_no_time(tmp_path, monkeypatch):
    console, seconds = lines(), iter([0.1] * 7 + [4])
    monkeypatch.setattr(Phase, "measured_seconds", property(lambda _: next(seconds)))
    run.start(tiny(tmp_path), console)
    assert "frames left" not in console.file.getvalue() and next(seconds, None) is None


@pytest.mark.parametrize("compiles", [False, True])
def test_a_run_estimates_its_time_after_compilation(compiles, tmp_path, monkeypatch):
    console, seen = lines(), []
    monkeypatch.setattr(run, "ESTIMATE_AFTER", 0.0)
    monkeypatch.setattr(run, "uses_graphs", lambda *_: compiles)
    advance = Phase.advance
    monkeypatch.setattr(
        Phase, "advance", lambda phase, *args: (advance(phase, *args), seen.append(phase.warming_up))[0]
    )
    run.start(tiny(tmp_path), console)
    said = console.file.getvalue()
    assert ("compiling during the first 4 iterations" in said) == compiles
    assert [word for word in seen if word] == ["compiling"] * (4 if compiles else 0)
    # 8 iterations of 32 frames: what is left when the speed is known
    assert f"{96 if compiles else 224} frames left: 0:00:" in said


def row(frames, rooms, best, mean):
    return {"frames": frames, "rooms": rooms, "return_best": best, "return_mean": mean}


def test_the_trend_says_when_rooms_and_best_return_last_rose():
    trend = Trend({})
    assert trend.texts() == []
    trend.add(row(1e6, 1, None, None))
    assert trend.texts() == []
    for million in range(1, 201):
        trend.add(row(million * 1e6, 6 if million >= 130 else 5, 2_600 if million >= 180 else 2_500, 10.0 * million))
    expected = [("newest room", "70 M frames ago"), ("newest best", "20 M frames ago")]
    assert trend.texts() == [*expected, ("return earlier", "1,800 (20 M frames ago)")]


def test_a_resumed_run_knows_its_trend(tmp_path):
    path = run.start(tiny(tmp_path), lines()).path
    columns = read_csv(path / "metrics.csv")
    whole, half = Trend(columns), Trend({name: values[:4] for name, values in columns.items()})
    for i in range(4, 8):
        half.add({name: values[i] for name, values in columns.items()})
    assert half.texts() == whole.texts() and "newest best" in dict(whole.texts())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_value_is_torn_from_its_title(width):
    """In a terminal of 80 columns "return (last 100)" stood above its value."""
    pairs = [("return (last 100)", "98.6"), ("best return", "109"), ("episodes", "2,239"), ("entropy", "0.344")]
    pairs += [("newest best", "1,024 frames ago"), ("return earlier", "90.0 (6,656 frames ago)"), ("bonus", "0.02")]
    console = Console(file=io.StringIO(), width=width)
    console.print(progress.grid(pairs, width))
    said = console.file.getvalue()
    assert all(f"{title} {text}" in said for title, text in pairs)
    assert len(said.splitlines()) == {40: 7, 60: 7, 80: 4, 100: 2, 160: 2}[width]


def test_a_piped_log_has_the_entropy_and_three_digits(clock):
    with Phase(lines(), "training", 1_000) as phase:
        clock.now += progress.LINE_EVERY
        values = {"return_mean": 0.6838, "episodes": 3, "rooms": 0, "bonus_raw": 1.0, "policy_loss": 0.1}
        phase.advance(10, values | {"entropy": 1.25})
    said = phase.console.file.getvalue()
    assert "return (last 100) 0.684  episodes 3  entropy 1.250" in said and "policy loss" not in said
