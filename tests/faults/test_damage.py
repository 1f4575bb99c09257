"""Rows 7 to 12, 45 and 46: checkpoints that are cut off, altered, malicious, of another version or of another run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle

import pytest
import safetensors.torch
import torch
from fault_helpers import contents, fingerprint, iterations, resume, rnd

from rnd.checkpoint import checkpoint
from rnd.checkpoint.checkpoint import FORMAT, MANIFEST, STATE, TENSORS
from rnd.checkpoint.export import CARD, export_agent, load_agent
from rnd.config import Config
from rnd.foundation.errors import RunError, UserError
from rnd.models.policy.mlp import WidthOptions

NEWEST, BEFORE = "000000004", "000000003"


def falls_back(path, finished, word):
    """The run says what is wrong, goes on from the checkpoint before, and ends where the whole one does."""
    said = resume(path)
    assert word in said and f"falling back to {path / 'checkpoints' / BEFORE}" in said
    assert iterations(path) == [1, 2, 3, 4]
    assert fingerprint(path) == fingerprint(finished)
    assert (path / "checkpoints" / f"damaged-{NEWEST}").is_dir()


@pytest.mark.parametrize("name", [TENSORS, STATE, MANIFEST])
def test_truncated_checkpoint_falls_back(name, broken, finished):
    file = broken / "checkpoints" / NEWEST / name
    os.truncate(file, file.stat().st_size // 2)
    falls_back(broken, finished, "cannot be read" if name == MANIFEST else "cut off")


@pytest.mark.parametrize("name", [TENSORS, STATE])
def test_one_flipped_bit_falls_back(name, broken, finished):
    file = broken / "checkpoints" / NEWEST / name
    flip(file, file.stat().st_size // 2)
    falls_back(broken, finished, "hash differs")


@pytest.mark.parametrize(
    "command",
    ["evaluate RUN --episodes 1 --device cpu", "watch RUN", "export RUN", "export RUN --checkpoint"],
)
def test_commands_that_play_say_that_the_newest_is_damaged(command, broken):
    """And which checkpoint they use; nothing is renamed."""
    file = broken / "checkpoints" / NEWEST / TENSORS
    flip(file, file.stat().st_size // 2)
    before = contents(broken / "checkpoints")
    code, said = rnd(*(word.replace("RUN", str(broken)) for word in command.split()))
    assert code == 0, said
    assert f"damaged checkpoint: {file} was altered" in said
    assert f"falling back to {broken / 'checkpoints' / BEFORE}" in said
    assert contents(broken / "checkpoints") == before


@pytest.mark.parametrize("name", ["agent.safetensors", "agent.safetensors.xz"])
def test_one_flipped_bit_of_an_agent_is_refused(name, finished, tmp_path):
    """Wherever it is: in the header, in the card, in its hash, in the weights."""
    file = export_agent(finished, tmp_path / name)
    size = file.stat().st_size
    for position in (*range(0, 400, 13), *range(400, size, size // 40)):
        flip(file, position)
        with pytest.raises(UserError, match="an agent exported by rnd"):
            load_agent(file)
        flip(file, position)
    assert "sha256" not in load_agent(file).card


def test_an_agent_of_rnd_0_1_has_no_hash(finished, tmp_path):
    file = export_agent(finished, tmp_path / "agent.safetensors")
    card = json.loads(file.with_suffix(".json").read_text())
    file.write_bytes(safetensors.torch.save(safetensors.torch.load_file(file), {CARD: json.dumps(card)}))
    assert load_agent(file).card == card


@pytest.mark.parametrize("state", [{}, [], {"policy": {}}, {"scaler": {}, "policy": 3, "bonus": {}, "env": {}}])
def test_a_checkpoint_without_a_state_is_refused_in_one_line(state, broken):
    for path in checkpoint.found(broken / "checkpoints"):
        saved = checkpoint.read(path)
        checkpoint.write(broken / "checkpoints", path.name, saved.metadata, state)
    for command in ("resume", "watch", "evaluate", "export"):
        code, said = rnd(command, broken, *(["--frames", "192"] if command == "resume" else []))
        assert code in (1, 2), (command, said)
        assert len([line for line in said.splitlines() if line.startswith("rnd: ")]) == 1, (command, said)


def test_any_flipped_byte_of_the_manifest_is_found(broken):
    """No byte of it can change what is read: not even one that would make the version a newer one."""
    path = broken / "checkpoints" / NEWEST
    whole = checkpoint.read_manifest(path)
    for position in range((path / MANIFEST).stat().st_size):
        flip(path / MANIFEST, position)
        with contextlib.suppress(checkpoint.DamagedCheckpointError):
            assert checkpoint.read_manifest(path) == whole
        flip(path / MANIFEST, position)


def test_nothing_whole_is_left(broken):
    for name in (NEWEST, BEFORE):
        flip(broken / "checkpoints" / name / TENSORS, 1000)
    with pytest.raises(RunError, match=r"no checkpoint in .* is whole"):
        resume(broken)


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("name", [TENSORS, STATE])
def test_malicious_pickle_is_refused(name, broken, finished, tmp_path):
    trace = tmp_path / "executed"
    data = pickle.dumps(Evil(trace))
    replace_signed(broken / "checkpoints" / NEWEST, name, data)
    falls_back(broken, finished, "is no checkpoint inside")
    pickle.loads(data)
    assert trace.exists(), "the pickle was harmless, so the test proves nothing"


def test_malicious_files_are_no_agents(broken, tmp_path):
    trace = tmp_path / "executed"
    for name, data in (("agent.pt", None), ("agent.safetensors", pickle.dumps(Evil(trace)))):
        file = tmp_path / name
        if data is None:
            torch.save(Evil(trace), file)
        else:
            file.write_bytes(data)
        with pytest.raises(UserError, match="not an agent exported by rnd"):
            load_agent(file)
    assert not trace.exists()


def test_a_file_that_is_not_ours_is_refused(broken, finished):
    (broken / "checkpoints" / NEWEST / "extra.pkl").write_bytes(b"")
    falls_back(broken, finished, "not a checkpoint's: extra.pkl")


def test_newer_format_is_refused(broken):
    path = broken / "checkpoints" / NEWEST / MANIFEST
    content = json.loads(path.read_bytes())
    del content["sha256"]
    content |= {"format": FORMAT + 1, "rnd": "9.9.9"}
    path.write_text(json.dumps(content | {"sha256": checkpoint.signature(content)}))
    with pytest.raises(
        UserError, match=rf"format {FORMAT + 1} \(written by rnd 9.9.9\).* reads formats up to {FORMAT}"
    ):
        resume(broken)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": {"id": "Acrobot-v1"}}, r"game CartPole-v1 instead of Acrobot-v1.*observation vector \[4\]"),
        ({"env": {"num_envs": 8}}, "4 environments instead of 8"),
        ({"policy": "gru"}, "policy mlp instead of gru"),
        ({"policy_options": WidthOptions(32)}, "policy width 16 instead of 32"),
        ({"bonus": "none"}, "bonus rnd instead of none"),
    ],
)
def test_checkpoint_of_another_run_is_refused(change, message, broken, monkeypatch):
    config = Config.from_dict(json.loads((broken / "config.json").read_text()))
    env = dataclasses.replace(config.env, **change.pop("env", {}))
    config = dataclasses.replace(config, env=env, frames=10**6, **change)
    (broken / "config.json").write_text(json.dumps(config.to_dict()))
    monkeypatch.setattr("rnd.run.Trainer", None)  # calling it would fail: nothing may be built, nothing loaded
    before = (broken / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match=message):
        resume(broken)
    assert (broken / "metrics.csv").read_bytes() == before


@pytest.mark.parametrize("lost", ["bonus/whiten/moments/mean", "scaler/moments/var", "scaler/carry_N"])
def test_missing_normaliser_is_an_error(lost, broken):
    path = broken / "checkpoints" / NEWEST
    part, key = lost.split("/", 1)
    key = key.replace("/", ".")
    document = json.loads((path / STATE).read_bytes())
    tensors = safetensors.torch.load_file(path / TENSORS)
    del document["state"][part][key], tensors[f"{part}/{key}"]
    replace_signed(path, STATE, json.dumps(document).encode())
    replace_signed(path, TENSORS, safetensors.torch.save(tensors))
    with pytest.raises(RunError, match=rf"lacks the state of {part}: {key}"):
        resume(broken, 6)
    if part == "bonus":
        with pytest.raises(UserError, match=f"lacks the state of bonus: {key}"):
            load_agent(path)


def flip(file, position):
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def replace_signed(path, name, data):
    """Put other contents into a checkpoint, as somebody would who can also write its manifest."""
    (path / name).write_bytes(data)
    content = json.loads((path / MANIFEST).read_bytes())
    del content["sha256"]
    content["files"][name] = {"bytes": len(data), "sha256": checkpoint.sha256(data)}
    (path / MANIFEST).write_text(json.dumps(content | {"sha256": checkpoint.signature(content)}))
