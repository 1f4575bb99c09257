"""Agents in one file, and runs in parts."""

from __future__ import annotations

import dataclasses
import io
import json
import lzma
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import rnd
from rnd import cli, run
from rnd.checkpoint import checkpoint
from rnd.checkpoint.checkpoint import sha256
from rnd.checkpoint.export import (
    CARD,
    checkpoint_text,
    export_agent,
    find_checkpoint,
    from_checkpoint,
    load_agent,
    write_tensors,
)
from rnd.checkpoint.folder import RunFolder
from rnd.checkpoint.packing import BLOCK, pack, unpack
from rnd.checkpoint.parts import import_parts, parse_size
from rnd.config.presets import preset
from rnd.foundation.errors import RunError, UserError
from rnd.training.evaluation import evaluate


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    config = preset("CartPole-v1")
    env = dataclasses.replace(config.env, num_envs=4)
    out = str(tmp_path_factory.mktemp("runs"))
    config = dataclasses.replace(config, env=env, rollout_steps=16, frames=200, out=out, name="run", device="cpu")
    return run.start(config, Console(file=io.StringIO())).path


def test_an_agent_is_the_same_from_run_checkpoint_and_file(trained, tmp_path, capsys):
    file = tmp_path / "agent.safetensors"
    with pytest.raises(SystemExit) as left:
        cli.main(["export", str(trained), "--out", str(file)])
    assert left.value.code == 0
    newest = checkpoint.found(trained / "checkpoints")[-1]
    saved = checkpoint.read(newest).state
    for path in (trained, newest, file):
        agent = load_agent(path)
        assert agent.config.env.id == "CartPole-v1" and agent.card["frames"] == 256
        for part, module in (("policy", agent.policy), ("bonus", agent.bonus)):
            state = module.state_dict()
            assert state.keys() == saved[part].keys()
            assert all(torch.equal(state[key], saved[part][key]) for key in state)
    card = json.loads(file.with_suffix(".json").read_text())
    assert card["score"] == agent.card["score"] and card["versions"]["rnd"]
    assert card["config"]["out"] == "runs", "the place where it was trained does not travel"


@pytest.fixture
def fallen(trained, tmp_path) -> Path:
    """A run whose best checkpoint is neither its first nor its newest."""
    path = tmp_path / "fallen"
    shutil.copytree(trained, path)
    saved = checkpoint.read(checkpoint.found(path / "checkpoints")[-1])
    for iteration, score in ((1, 10.0), (2, 90.0), (3, 40.0), (4, 20.0)):
        changed = {"iteration": iteration, "frames": 64 * iteration, "score": score}
        checkpoint.write(path / "checkpoints", f"{iteration:09d}", saved.metadata | changed, saved.state)
    return path


@pytest.mark.parametrize("command", ["resume", "evaluate", "watch", "export"])
def test_the_name_of_a_run_leads_to_its_folder(command, tmp_path, monkeypatch):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^mine .*; nearest: runs/mine$"):
        cli.dispatch([command, "mine"])
    with pytest.raises(UserError) as refused:
        cli.dispatch([command, "yours"])
    assert "nearest" not in str(refused.value)


def test_the_score_of_a_checkpoint_has_three_digits():
    card = {"iteration": 3, "frames": 1000, "score": 0.04567}
    assert checkpoint_text(card) == "checkpoint: iteration 3, 1,000 frames, mean return 0.0457 of 100 episodes"
    assert checkpoint_text(card | {"score": None}).endswith("no episode has ended")


def test_the_best_checkpoint_instead_of_the_newest(fallen, tmp_path, capsys):
    assert load_agent(fallen).card["iteration"] == 4
    assert load_agent(fallen, best=True).card["iteration"] == rnd.load(fallen, best=True).card["iteration"] == 2
    for flags, text in (
        ([], "checkpoint: iteration 4, 256 frames, mean return 20.0"),
        (["--best"], "iteration 2, 128"),
    ):
        cli.dispatch(["export", str(fallen), "--out", str(tmp_path / "agent.safetensors"), *flags])
        assert text in capsys.readouterr().out
    assert load_agent(tmp_path / "agent.safetensors").card["score"] == 90.0
    cli.dispatch(["evaluate", str(fallen), "--best", "--episodes", "2", "--device", "cpu"])
    assert "best checkpoint: iteration 2, 128 frames, mean return 90.0 of 100 episodes" in capsys.readouterr().out
    assert json.loads((fallen / "evaluation.json").read_text())["frames"] == 128
    cli.dispatch(["export", str(fallen), "--best", "--card", "--out", str(tmp_path / "card")])
    assert json.loads((tmp_path / "card" / "agent.json").read_text())["iteration"] == 2
    assert "| checkpoint | iteration 2 of 4 |" in (tmp_path / "card" / "README.md").read_text()
    with pytest.raises(
        UserError, match=r"evaluation\.json is of the checkpoint at 128 frames, and the agent of .* 256"
    ):
        cli.dispatch(["export", str(fallen), "--card", "--out", str(tmp_path / "newest")])


def test_a_damaged_best_checkpoint_is_passed_over(fallen):
    (fallen / "checkpoints" / "000000002" / "state.json").write_text("{}")
    assert load_agent(fallen, best=True).card["iteration"] == 3
    (fallen / "checkpoints" / "000000009").symlink_to("nowhere")
    assert load_agent(fallen, best=True).card["iteration"] == 3
    assert load_agent(fallen).card["iteration"] == 4


def test_best_is_refused_where_there_is_nothing_to_choose(fallen, tmp_path):
    file = export_agent(fallen, tmp_path / "agent.safetensors")
    for command in ("evaluate", "watch", "export"):
        with pytest.raises(
            UserError, match=r"--best chooses among the checkpoints of a run folder, and .* is an exported"
        ):
            cli.dispatch([command, str(file), "--best"])
    with pytest.raises(UserError, match="is one of them; leave it out"):
        load_agent(fallen / "checkpoints" / "000000002", best=True)
    with pytest.raises(UserError, match="--best is for an agent"):
        cli.dispatch(["export", str(fallen), "--best", "--checkpoint"])
    for path in checkpoint.found(fallen / "checkpoints"):
        saved = checkpoint.read(path)
        checkpoint.write(path.parent, path.name, saved.metadata | {"score": None}, saved.state)
    with pytest.raises(UserError, match="no checkpoint with a mean return yet"):
        load_agent(fallen, best=True)


def test_half_the_bits(trained, tmp_path):
    whole = export_agent(trained, tmp_path / "whole.safetensors")
    half = export_agent(trained, tmp_path / "half.safetensors", half=True)
    assert half.stat().st_size < 0.75 * whole.stat().st_size
    exact, rounded = load_agent(whole).policy, load_agent(half).policy
    for (name, a), (_, b) in zip(exact.named_parameters(), rounded.named_parameters(), strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=name)


def test_an_agent_without_its_bonus_plays_the_same(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.dispatch(["export", str(trained), "--out", "whole.safetensors"])
    cli.dispatch(["export", str(trained), "--out", "policy.safetensors", "--bonus", "no"])
    whole, policy = load_agent("whole.safetensors"), load_agent("policy.safetensors")
    assert policy.bonus is None and whole.bonus is not None
    assert Path("policy.safetensors").stat().st_size < 0.7 * Path("whole.safetensors").stat().st_size
    assert all(torch.equal(a, b) for a, b in zip(policy.policy.parameters(), whole.policy.parameters(), strict=True))
    assert evaluate(policy, 2, seed=3).returns == evaluate(whole, 2, seed=3).returns
    again = export_agent(tmp_path / "policy.safetensors", tmp_path / "again.safetensors", bonus=True)
    assert load_agent(again).bonus is None, "what is left out does not come back"
    agent = rnd.load("policy.safetensors")
    with pytest.raises(UserError, match=r"policy.safetensors has no bonus: its file has the policy alone"):
        agent.bonus([0.0, 0.0, 0.0, 0.0])
    with pytest.raises(UserError, match="a checkpoint without it could not continue"):
        cli.dispatch(["export", str(trained), "--bonus", "no", "--checkpoint"])


def test_a_bonus_that_is_missing_was_not_left_out(trained, tmp_path):
    """Only a file whose card says so has no bonus: any other is damaged."""
    card, tensors = from_checkpoint(find_checkpoint(trained))
    file = tmp_path / "damaged.safetensors"
    write_tensors(file, {key: value for key, value in tensors.items() if key.startswith("policy/")}, CARD, card)
    with pytest.raises(UserError, match="lacks the state of bonus"):
        load_agent(file)


def test_compressed(trained, tmp_path):
    plain = export_agent(trained, tmp_path / "plain.safetensors")
    packed = export_agent(trained, tmp_path / "packed.safetensors.xz")
    assert packed.stat().st_size < plain.stat().st_size and (tmp_path / "packed.json").exists()
    a, b = (load_agent(path).policy.state_dict() for path in (plain, packed))
    assert all(torch.equal(a[key], b[key]) for key in a)
    packed.write_bytes(packed.read_bytes()[:-100])
    with pytest.raises(UserError, match="not an agent exported by rnd"):
        load_agent(packed)


def test_a_run_in_parts_is_joined_and_resumed(trained, tmp_path):
    parts = tmp_path / "parts"
    for arguments in (
        ["export", str(trained), "--max-part", "64KiB", "--out", str(parts)],
        ["import", str(parts), "--out", str(tmp_path / "elsewhere"), "--name", "joined"],
        ["resume", str(tmp_path / "elsewhere" / "joined"), "--frames", "400"],
        ["resume", str(shutil.copytree(trained, tmp_path / "whole")), "--frames", "400"],
    ):
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        assert left.value.code == 0
    files = list(parts.iterdir())
    assert len(files) > 3 and max(file.stat().st_size for file in files) <= 64 * 1024
    joined, whole = tmp_path / "elsewhere" / "joined", tmp_path / "whole"
    assert (joined / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    tensors = [checkpoint.found(path / "checkpoints")[-1] / "tensors.safetensors" for path in (joined, whole)]
    assert tensors[0].read_bytes() == tensors[1].read_bytes()


@pytest.fixture
def parts(trained, tmp_path) -> Path:
    from rnd.checkpoint.parts import export_parts

    return export_parts(trained, tmp_path / "parts", 64 * 1024)[0].parent


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_damaged_parts_are_refused(damage, parts, tmp_path):
    part = parts / "part-0002.bin"
    if damage == "missing":
        part.unlink()
    elif damage == "truncated":
        os.truncate(part, 100)
    else:
        data = bytearray(part.read_bytes())
        data[10] ^= 1
        part.write_bytes(data)
    with pytest.raises(RunError, match=r"part-0002.bin is missing, cut off or altered"):
        import_parts(parts, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "checkpoints/../../evil", "checkpoints/1/../x", "notes.txt"])
def test_parts_cannot_name_other_files(name, parts, tmp_path):
    index = json.loads((parts / "parts.json").read_text())
    index["files"][0]["name"] = name
    (parts / "parts.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="no file of a run; nothing was written"):
        import_parts(parts, tmp_path / "out")
    index["files"][0]["name"], index["name"] = "config.json", "../evil"
    (parts / "parts.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="no run name"):
        import_parts(parts, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "evil").exists()


def test_parts_cannot_announce_a_huge_file(parts, tmp_path):
    index = json.loads((parts / "parts.json").read_text())
    small = next(entry for entry in index["files"] if entry["name"] == "config.json")
    small["bytes"] += 2**30
    (parts / "parts.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"config\.json has 1,073,74.* bytes, more than"):
        import_parts(parts, tmp_path / "out")


def test_parts_are_compressed_exactly():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(BLOCK // 4 + 1000).astype(np.float32).tobytes() + b"odd"
    for data, planes in ((weights, True), (b"step,return\n" * 10**6, False), (b"", True)):
        packed = pack(data, planes)
        pieces = [packed[at : at + 70_001] for at in range(0, len(packed), 70_001)]
        assert b"".join(unpack(pieces, planes)) == data
    assert len(pack(weights, planes=True)) < 0.88 * len(weights) < len(pack(weights, planes=False))


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (lzma.compress(bytes(BLOCK + 1)), "holds more than"),
        (lzma.compress(bytes(1000))[:-40], "cut off"),
        (b"no xz at all", "is damaged"),
    ],
)
def test_parts_that_do_not_unpack_are_refused(packed, reason):
    with pytest.raises(RunError, match=reason):
        list(unpack([packed], planes=False))


def test_parts_never_write_more_than_they_announce(parts, tmp_path):
    index = json.loads((parts / "parts.json").read_text())
    next(entry for entry in index["files"] if entry["name"] == "metrics.csv")["bytes"] -= 1
    (parts / "parts.json").write_text(json.dumps(index))
    with pytest.raises(RunError, match=r"metrics\.csv in the parts is larger than the index says"):
        import_parts(parts, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_parts_cannot_announce_more_than_compression_adds(parts, tmp_path):
    """They would be hashed: a sparse file of many gigabytes costs its sender nothing."""
    index = json.loads((parts / "parts.json").read_text())
    for entry, size in ((index["files"][0], "packed"), (index["parts"][0], "bytes")):
        entry[size] += 2**40
    (parts / "parts.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"config\.json is larger compressed than it is"):
        import_parts(parts, tmp_path / "out")


def test_an_import_never_overwrites(parts, tmp_path):
    first = import_parts(parts, tmp_path / "out")
    before = sha256((first.path / "config.json").read_bytes())
    with pytest.raises(UserError, match="exists already"):
        import_parts(parts, tmp_path / "out")
    assert sha256((first.path / "config.json").read_bytes()) == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run"]


def test_sizes():
    assert parse_size("15MB") == 15_000_000 and parse_size("1.5 GiB") == 3 * 2**29 and parse_size("70000") == 70_000
    for text in ("15 apples", "", "-3MB", "1KB"):
        with pytest.raises(UserError):
            parse_size(text)


def test_agents_of_another_kind_are_refused(trained, tmp_path):
    import safetensors.torch

    for metadata, message in (({}, "has no card"), ({"rnd.card": json.dumps({"format": 9})}, "of format 9")):
        file = tmp_path / "other.safetensors"
        safetensors.torch.save_file({"x": torch.zeros(1)}, file, metadata)
        with pytest.raises(UserError, match=message):
            load_agent(file)
    with pytest.raises(UserError, match="does not exist"):
        load_agent(tmp_path / "nothing")


def test_a_folder_around_or_within_a_run_leads_to_the_run(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "config.json").touch()
    runs = re.escape(f"{tmp_path}/a, {tmp_path}/b")
    for read in (load_agent, RunFolder.open):
        with pytest.raises(UserError, match=f"is not a run folder: it has no config.json; nearest: {runs}$"):
            read(tmp_path)
        with pytest.raises(UserError, match=f"is not a run folder: .*; nearest: {tmp_path}/a$"):
            read(tmp_path / "a" / "checkpoints")
    with pytest.raises(UserError, match=f"has no checkpoint yet; .*: rnd resume {tmp_path}/a$"):
        load_agent(tmp_path / "a")
