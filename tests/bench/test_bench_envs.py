"""rnd bench envs: what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from rnd.commands.bench import main
from rnd.errors import UserError


def test_json(capsys):
    assert main(["envs", "--num-envs", "4", "--backend", "ale", "--seconds", "0.2", "--rounds", "2", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [r["contender"] for r in results] == ["ale-py workers", "AtariVectorEnv"]
    ours, theirs = results
    assert theirs["ratio"] == 1
    # Not a measurement, only a check that frames are counted alike: both run the same emulator on the same cores.
    assert 0.2 < ours["ratio"] < 5 and ours["num_envs"] == 4 and ours["backend"].startswith("ale-py, ")


def test_unknown_names():
    with pytest.raises(UserError, match="unknown bench 'env'; nearest: envs"):
        main(["env"])
    with pytest.raises(UserError, match="unknown game montezma; nearest: montezuma"):
        main(["envs", "--games", "montezma"])
