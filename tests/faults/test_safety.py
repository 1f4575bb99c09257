"""Rows 25, 26, 27, 31, 51: nothing is written outside the run folder, wrong input gets a line, no network is needed."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from fault_helpers import FLAGS, FRAMES, Rnd, contents, resume, rnd, small, start

from rnd import cli
from rnd.foundation.errors import UserError

NAMES = ["../x", "/tmp/x", "a/b", "a\\b", "x\0y", "x" * 300, "é" * 100, "", ".", "..", ".hidden", "-x", "a\nb"]


@pytest.mark.parametrize("name", NAMES)
def test_bad_run_names_are_rejected(name, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"run name"):
        start(small(), out, name)
    assert not out.exists() and [p for p in tmp_path.iterdir() if p != out] == []


@pytest.mark.parametrize(
    "entry", [".", "checkpoints", "checkpoints/000000004", "metrics.csv", "tensorboard", "rooms.json"]
)
def test_a_link_that_leads_outside_is_not_written_through(entry, broken, tmp_path):
    outside = tmp_path / "outside"
    inside = broken / entry
    shutil.move(inside, outside)
    inside = broken if entry == "." else inside
    inside.symlink_to(outside)
    before = contents(outside)
    with pytest.raises(UserError, match=r"is a symbolic link|points outside the run folder"):
        resume(broken, 6)
    assert contents(outside) == before


def test_a_new_run_does_not_follow_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for name, target in (("run", outside), ("dangling", tmp_path / "nowhere")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(UserError, match="exists already"):
            start(small(), tmp_path, name)
    assert not any(outside.iterdir()) and not (tmp_path / "nowhere").exists()


def test_a_link_that_stays_inside_is_allowed(broken):
    (broken / "latest").symlink_to(broken / "checkpoints" / "000000004")
    resume(broken, 5)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train", "montezumaa"], "nearest: montezuma"),
        (["train", "ALE/Montezuma-v5"], "nearest: .*ALE/MontezumaRevenge-v5"),
        (["train", "CartPol-v1"], "nearest: CartPole-v1"),
        (["train", "CartPole-v1", "--frame", "5"], "nearest: --frames"),
        (["train", "CartPole-v1", "--lr", "-1"], "--lr must be greater than 0, not -1.0; the default is 0.001"),
        (["train", "CartPole-v1", "--lr", "nan"], "--lr must be greater than 0"),
        (["train", "CartPole-v1", "--env.num-envs", "0"], "--env.num-envs must be greater than 0"),
        (["train", "CartPole-v1", "--env.num-envs", "30"], "nearest: --env.num-envs 32"),
        (["train", "CartPole-v1", "--bonus", "rdn"], "nearest: rnd"),
        (["train", "CartPole-v1", "--policy", "cmm"], "cnn"),
        (["trian"], "nearest: train"),
        (["train", "\x1b[31mred\x1b[0m"], r"unknown environment \\x1b\[31mred\\x1b\[0m; nearest: "),
        (["resume", "no-such-run"], "not a run folder"),
        (["resume"], "name the run folder"),
        (["export", "no-such-run"], "not a run folder"),
        (["import", "no-such-folder"], "holds no run in parts"),
    ],
)
def test_wrong_input_gets_one_line_and_code_2(arguments, hint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    said = capsys.readouterr().err
    assert left.value.code == 2, said
    assert said.count("\n") == 1 and re.search(hint, said), said
    assert not any(tmp_path.iterdir())


def test_an_unknown_device_gets_one_line_and_code_2(finished):
    code, said = rnd("evaluate", finished, "--device", "tpu")
    assert code == 2 and said.startswith("rnd: unknown device 'tpu'; nearest: ") and said.count("\n") == 1
    code, said = rnd("evaluate", finished, "--device", "gpu")
    assert code == 2 and said.startswith("rnd: unknown device 'gpu'; nearest: cuda")


def test_escapes_and_markup_of_a_strangers_run_are_shown_as_text(broken):
    """Row 51: in what every command says about it."""
    path = broken / "config.json"
    config = json.loads(path.read_text())
    config["env"]["id"] = config["bonus"] = "\x1b]0;owned\x07\x1b[2J[/red][bold"
    path.write_text(json.dumps(config))
    for command in ("resume", "report", "evaluate", "watch", "export"):
        _, said = rnd(command, broken)
        assert said.isascii() and not set(said) & {"\x1b", "\x07"}, (command, said)


NO_NETWORK = """
import os, socket

def refuse(what):
    def refused(*arguments, **_):
        with open(os.environ["RND_ATTEMPTS"], "a") as file:
            print(what, arguments[1:], file=file)
        raise OSError("there is no network")
    return refused

socket.socket.connect = refuse("connect")
socket.socket.connect_ex = refuse("connect")
socket.socket.bind = refuse("bind")
socket.socket.listen = refuse("listen")
socket.getaddrinfo = refuse("getaddrinfo")
"""


def test_no_network_no_display_no_login(tmp_path):
    """The default job works without them, and does not even ask: nothing connects, nothing listens."""
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    env = {"PYTHONPATH": str(tmp_path), "RND_ATTEMPTS": str(tmp_path / "attempts"), "HOME": str(tmp_path / "home")}
    env |= {"DISPLAY": "", "WAYLAND_DISPLAY": "", "WANDB_API_KEY": "", "TERM": "dumb"}
    program = Rnd("train", *FLAGS, "--frames", str(2 * FRAMES), cwd=tmp_path, env=env)
    code, said = program.finish()
    assert code == 0, said
    assert "Traceback" not in said
    assert not (tmp_path / "attempts").exists(), (tmp_path / "attempts").read_text()


def test_run_json_is_plain(finished):
    assert json.loads((finished / "run.json").read_text())["packages"]["torch"]
