"""Paths that cannot be written or read, and full disks: one line that names the path, exit code 1 or 2."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from fault_helpers import FLAGS, contents, rnd

from rnd.checkpoint import checkpoint, export
from rnd.checkpoint.parts import export_parts, import_parts

OUTPUTS = {
    "report": ["report", "RUN", "--out", "OUT/page.html"],
    "agent": ["export", "RUN", "--out", "OUT/agent.safetensors"],
    "parts": ["export", "RUN", "--checkpoint", "--out", "OUT/parts"],
    "import": ["import", "PARTS", "--out", "OUT"],
    "train": ["train", "CartPole-v1", *FLAGS, "--frames", "32", "--out", "OUT"],
}


@pytest.fixture
def parts(finished, tmp_path) -> Path:
    return export_parts(finished, tmp_path / "parts", None)[0].parent


def command(name: str, run: Path, out: Path, parts: Path) -> list[str]:
    words = OUTPUTS[name]
    return [word.replace("RUN", str(run)).replace("OUT", str(out)).replace("PARTS", str(parts)) for word in words]


def fails_in_one_line(arguments: list[str], out: Path) -> None:
    code, said = rnd(*arguments)
    assert code in (1, 2) and said.startswith("rnd: ") and said.count("\n") == 1, said
    assert str(out)[:50] in said


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("kind", ["too long", "below a file", "a file", "a FIFO", "a device", "a broken link"])
def test_an_output_of_the_wrong_kind_is_one_line(kind, name, finished, parts, tmp_path):
    out = tmp_path / "out"
    if kind == "too long":
        out = tmp_path / ("x" * 300)
    elif kind == "below a file":
        out.touch()
        out = out / "deeper"
    elif kind == "a file":
        out.touch()
    elif kind == "a FIFO":
        os.mkfifo(out)
    elif kind == "a device":
        out = Path("/dev/null")
    else:
        out.symlink_to(tmp_path / "nowhere" / "deeper")
    before = contents(tmp_path)
    fails_in_one_line(command(name, finished, out, parts), out)
    assert contents(tmp_path) == before


@pytest.fixture
def read_only(tmp_path):
    path = tmp_path / "read-only"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a read-only disk cannot be mounted here ({done.stderr.strip()}); run as root to test it")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_read_only_output_is_one_line(name, finished, parts, read_only):
    fails_in_one_line(command(name, finished, read_only, parts), read_only)


@pytest.mark.parametrize("name", ["report", "agent", "parts", "import"])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(name, finished, parts, disk):
    ballast = disk.path / "ballast"
    ballast.write_bytes(bytes(2**20 - 8192))
    fails_in_one_line(command(name, finished, disk.path, parts), disk.path)
    assert [path for path in disk.path.rglob("*") if path.is_file() and not path.name.startswith("part-")] == [ballast]


def test_a_full_disk_on_resume_is_one_line_and_the_run_is_whole(finished, disk):
    run = Path(shutil.copytree(finished, disk.path / "run"))
    ballast = disk.path / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(bytes(2**20))
    code, said = rnd("resume", run, "--frames", str(6 * 32))
    assert code == 1 and "Traceback" not in said and "No space left" in said
    ballast.unlink()
    code, said = rnd("resume", run, "--frames", str(6 * 32))
    assert code == 0, said


def test_an_export_finds_the_newest_checkpoint_while_old_ones_are_removed(broken, tmp_path, monkeypatch):
    """What a training run does meanwhile: writes checkpoint 5 and removes 3 and 4, just before each is read."""
    root, read = broken / "checkpoints", checkpoint.read
    newest = read(root / "000000004")

    def race(path: Path) -> checkpoint.Checkpoint:
        if path.name == "000000004":
            checkpoint.write(root, "000000005", newest.metadata | {"iteration": 5}, newest.state)
            for name in ("000000003", "000000004"):
                checkpoint.discard(root / name)
        return read(path)

    monkeypatch.setattr(checkpoint, "read", race)
    card, _ = export.from_checkpoint(export.find_checkpoint(broken))
    assert card["iteration"] == 5


@pytest.mark.parametrize("moment", ["the checkpoint is removed", "rooms.json is not written yet"])
def test_parts_are_those_of_one_checkpoint_while_a_run_trains(moment, broken, tmp_path, monkeypatch):
    root, find = broken / "checkpoints", checkpoint.newest

    def race(folder: Path) -> tuple[checkpoint.Checkpoint | None, list[str]]:
        found, problems = find(folder)
        if found and found.path.name == "000000004":  # removed after it was read, before its files are copied
            checkpoint.write(root, "000000005", found.metadata | {"iteration": 5}, found.state)
            checkpoint.discard(found.path)
        return found, problems

    if moment == "the checkpoint is removed":
        monkeypatch.setattr(checkpoint, "newest", race)
    else:
        (broken / "rooms.json").unlink()
    parts = export_parts(broken, tmp_path / "parts", None)[0].parent
    monkeypatch.undo()
    run = import_parts(parts, tmp_path / "joined")
    assert len(checkpoint.found(run.checkpoints)) == 1 and not checkpoint.newest(run.checkpoints)[1]
