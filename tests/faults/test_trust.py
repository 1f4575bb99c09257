"""Row 39: a run folder or an agent of a stranger names a module. It is not imported without being asked to."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest
import safetensors.torch
from fault_helpers import resume, rnd, small, start

from rnd.checkpoint import trust
from rnd.checkpoint.checkpoint import MANIFEST, STATE, sha256, signature
from rnd.checkpoint.export import export_agent, load_agent
from rnd.foundation.errors import UserError

STRANGE = """
import pathlib
pathlib.Path("imported").touch()
import gymnasium
from rnd.bonus.rnd import RND
from rnd.models.policy.mlp import MLP

def make():
    return gymnasium.make("CartPole-v1")
"""


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """A module that leaves a file behind when it is imported, and a memory of trained names that is empty."""
    (tmp_path / "strange.py").write_text(STRANGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "imported"
    sys.modules.pop("strange", None)


NAMES = [("env", "id", "strange:make"), ("bonus", None, "strange:RND"), ("policy", None, "strange:MLP")]
NAMES += [("writers", None, "strange:Writer")]


@pytest.mark.parametrize(("field", "inner", "name"), NAMES, ids=[name for _, _, name in NAMES])
def test_a_strangers_code_is_not_imported(field, inner, name, broken, strange):
    """By no command: neither from config.json nor from the checkpoint, whose hashes the stranger has made to fit."""

    def put(config):
        if inner:
            config[field][inner] = name
        else:
            config[field] = name

    config = json.loads((broken / "config.json").read_text())
    put(config)
    (broken / "config.json").write_text(json.dumps(config))
    path = broken / "checkpoints" / "000000004"
    document, manifest = json.loads((path / STATE).read_bytes()), json.loads((path / MANIFEST).read_bytes())
    put(document["metadata"]["config"])
    data = json.dumps(document).encode()
    (path / STATE).write_bytes(data)
    manifest["files"][STATE] = {"bytes": len(data), "sha256": sha256(data)}
    del manifest["sha256"]
    (path / MANIFEST).write_text(json.dumps(manifest | {"sha256": signature(manifest)}))
    for command in (["resume", broken, "--frames", "1000"], ["watch", broken], ["report", broken], ["export", broken]):
        code, said = rnd(*command)
        assert not strange.exists(), command
        if command[0] in ("resume", "watch"):
            assert code == 2 and name in said and "--trust" in said and said.count("\n") == 1
        else:
            assert code == 0, said
    agent = broken / "export" / "run.safetensors"
    for file in (agent, broken, path):
        with pytest.raises(UserError, match=f"{name}; if you trust it, add --trust"):
            load_agent(file)
    assert not strange.exists()


def test_ones_own_run_is_resumed_without_a_question(strange, tmp_path):
    """Also by a job that has no terminal; and a stranger's run that names the same code, which is one's own."""
    path = start(small("strange:make"), tmp_path)
    remembered = f"strange:make\t{tmp_path / 'strange.py'}\n"
    assert strange.exists() and (tmp_path / "state" / "rnd" / "trusted").read_text() == remembered
    resume(path, 5)
    start(small("strange:make"), tmp_path, "again")
    assert (tmp_path / "state" / "rnd" / "trusted").read_text() == remembered


def test_a_file_of_the_same_name_elsewhere_is_another(strange, tmp_path, monkeypatch):
    """A stranger's folder brings a module that has the name of one's own."""
    path = start(small("strange:make"), tmp_path)
    sys.modules.pop("strange")
    strange.unlink()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "strange.py").write_text(STRANGE)
    done = subprocess.run(
        [sys.executable, "-m", "rnd", "evaluate", str(path), "--episodes", "1"],
        cwd=theirs,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "names code that you have not trained with: strange:make" in done.stderr
    assert not (theirs / "imported").exists()
    assert trust.known("strange:make")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.startswith(str(tmp_path.parent))])
    assert trust.known("strange:make")  # there is nothing to run: the import says so


def test_packages_are_found_without_importing_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outer_package").mkdir()
    assert trust.file_of("outer_package.inner:make") == str(tmp_path / "outer_package")
    (tmp_path / "outer_package" / "__init__.py").write_text("raise SystemExit")
    assert trust.file_of("outer_package.inner:make") == str(tmp_path / "outer_package" / "__init__.py")
    assert trust.file_of("no_such_package:make") == ""


def test_trust_runs_it_once_and_remembers_nothing(strange, tmp_path, monkeypatch):
    path = start(small("strange:make"), tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    sys.modules.pop("strange")
    strange.unlink()
    code, said = rnd("resume", path, "--frames", str(5 * 32))
    assert code == 2 and not strange.exists(), said
    code, said = rnd("resume", path, "--frames", str(5 * 32), "--trust")
    assert code == 0 and strange.exists(), said
    assert not (tmp_path / "elsewhere").exists()


def test_a_home_that_cannot_be_written_stops_no_run(strange, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    path = start(small("strange:make"), tmp_path)
    with pytest.raises(UserError, match="--trust"):
        resume(path, 5)


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_in_a_terminal_there_is_a_question(answer, strange, tmp_path):
    path = start(small("strange:make"), tmp_path)
    strange.unlink()
    ours, theirs = pty.openpty()
    env = os.environ | {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}
    command = [sys.executable, "-m", "rnd", "resume", str(path), "--frames", str(5 * 32)]
    source = os.pathsep.join(map(os.path.abspath, sys.path))
    program = subprocess.Popen(
        command, cwd=tmp_path, env=env | {"PYTHONPATH": source}, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while not said.rstrip().endswith(b"[y/N]"):
        said += os.read(ours, 1024)
    assert b"strange:make" in said and not strange.exists()
    os.write(ours, f"{answer}\n".encode())
    program.stdout.read()
    assert program.wait(60) == (0 if answer == "y" else 2)
    assert strange.exists() == (answer == "y")
    os.close(ours)


def test_an_agent_of_our_own_classes_needs_no_question(broken, tmp_path):
    agent = export_agent(broken, tmp_path / "agent.safetensors")
    assert load_agent(agent).config.policy == "mlp"
    assert safetensors.torch.load_file(agent)
