"""rnd bench envs: what it prints, and what it refuses."""

from __future__ import annotations

import itertools
import json
import sys
from types import SimpleNamespace

import pytest

from rnd.bench import envs
from rnd.commands.bench import main
from rnd.config.presets import ATARI_GAMES
from rnd.envs import native
from rnd.foundation.errors import UserError

FAKE_ENVPOOL = """
from types import SimpleNamespace
made = []

def make_gymnasium(name, **options):
    made.append((name, options))
    nothing = lambda *_: None
    return SimpleNamespace(action_space=SimpleNamespace(n=18), reset=nothing, step=nothing)
"""


def test_json(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)  # as where it is not installed
    assert main(["envs", "--num-envs", "4", "--backend", "ale", "--seconds", "0.2", "--rounds", "2", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [r["candidate"] for r in results] == ["ale-py workers", "AtariVectorEnv"]
    workers, baseline = results
    assert baseline["ratio"] == 1
    assert workers["ratio"] > 0 and workers["num_envs"] == 4 and workers["backend"].startswith("ale-py, ")


def test_frames_are_counted_alike(monkeypatch):
    """A clock that gives 0, 1, 2, ...: both play until it gives 3 and stop at 4; only the first sends a step ahead."""
    options = envs.Options(backend="ale")
    (env,) = envs.measured_envs(options, "montezuma", 2, threads=1).values()
    try:
        env.reset()
        for play, steps in ((envs.player(env), 3), (envs.baseline("montezuma", 2, threads=1), 2)):
            clock = itertools.count()
            monkeypatch.setattr(envs, "time", SimpleNamespace(perf_counter=lambda clock=clock: next(clock)))
            assert play(3) == steps * 2 * 4 / 4  # environments, frames per step, seconds
    finally:
        env.close()


def test_envpool_takes_part_where_it_is_installed(tmp_path, monkeypatch, capsys):
    (tmp_path / "envpool.py").write_text(FAKE_ENVPOOL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "envpool", raising=False)
    flags = ["--games", "private-eye", "--num-envs", "4", "--workers", "2", "--backend", "ale"]
    assert main(["envs", *flags, "--seconds", "0.2", "--rounds", "2", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [r["candidate"] for r in results] == ["ale-py workers", "AtariVectorEnv", "EnvPool"]
    assert results[-1]["ratio"] > 1 and results[-1]["backend"].endswith(", 2 threads")
    ((name, options),) = sys.modules.pop("envpool").made
    assert name == "PrivateEye-v5"
    assert options["max_episode_steps"] * options["frame_skip"] == 18_000 and options["num_envs"] == 4


def test_envpool_plays_by_the_same_rules():
    """The real package has the ids and the options, and the defaults that are not written out."""
    envpool = pytest.importorskip("envpool")
    assert {game.removeprefix("ALE/") for game in ATARI_GAMES.values()} <= {*envpool.list_all_envs()}
    play = envs.envpool_player("montezuma", 2, threads=1)
    (env,) = (cell.cell_contents for cell in play.__closure__ if hasattr(cell.cell_contents, "config"))
    same = {"stack_num": 1, "gray_scale": True, "img_height": 84, "img_width": 84, "batch_size": 2, "noop_max": 1}
    same |= {"episodic_life": False, "reward_clip": False, "full_action_space": False, "num_threads": 1}
    assert {name: env.config[name] for name in same} == same
    assert play(0.1) > 0


def test_rows_of_the_comparison_are_printed_as_they_come():
    if not native.available():
        pytest.skip(native.why_unavailable())
    from rnd.envs.native.exactness import GameResult, print_rows

    lines = []

    def results():
        for game, mismatches in (("pitfall", {}), ("venture", {"ram": 2})):
            yield GameResult(game, frames=1_000, mismatches=mismatches, first_mismatch="frame 7", seconds=0.5)
            assert lines[-1].startswith(f"| {game} | 1,000 |")

    assert not print_rows(results(), lines.append)
    assert lines[1].endswith("| none | 2,000 |") and lines[2].endswith("| {'ram': 2}, first: frame 7 | 2,000 |")
    lines.clear()
    assert print_rows([GameResult("pitfall")], lines.append)


def test_unknown_names():
    with pytest.raises(UserError, match="unknown bench 'env'; nearest: envs"):
        main(["env"])
    with pytest.raises(UserError, match="unknown game montezma; nearest: montezuma"):
        main(["envs", "--games", "montezma"])


def test_the_ratio_is_explained(capsys, monkeypatch):
    result = envs.Result("montezuma", 4, "native core", "native", 100.0, 9.095)
    monkeypatch.setattr(envs, "measure", lambda *_: [result])
    assert main(["envs", "--num-envs", "4"]) == 0
    said = capsys.readouterr().out
    assert "9.10 x AtariVectorEnv" in said and "it is not the quotient of the two speeds" in said
