"""Row 33: links inside a run folder. Nothing outside is written or read, whatever the command."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fault_helpers import contents, rnd

SECRET = "the contents of a file that is nobody's business"

REPORT = ("report", "RUN")
AGENT, PARTS = ("export", "RUN"), ("export", "RUN", "--checkpoint")
WATCH = ("watch", "RUN")

LINKS = [
    (".report.html.part", "secret", REPORT),
    ("report.html", "secret", REPORT),
    ("report.html", "nowhere", REPORT),
    ("metrics.csv", "secret", REPORT),
    ("run.json", "secret", REPORT),
    ("watch", "folder", REPORT),
    ("watch/episode.mp4", "secret", REPORT),
    ("export", "folder", AGENT),
    ("export/run.safetensors", "secret", AGENT),
    ("export/run.json", "secret", AGENT),
    ("export", "folder", PARTS),
    ("export/parts", "folder", PARTS),
    ("export/parts/part-0001.bin", "secret", PARTS),
    ("run.json", "secret", PARTS),
    ("config.json", "secret", PARTS),
    ("metrics.csv", "secret", PARTS),
    ("checkpoints/000000004/state.json", "secret", PARTS),
    ("checkpoints", "saved", PARTS),
    ("watch", "folder", WATCH),
    ("watch/.episode.mp4.part.mp4", "secret", WATCH),
    ("watch/episode.mp4", "secret", WATCH),
    ("watch/episode.png", "nowhere", WATCH),
    ("checkpoints", "saved", WATCH),
]


@pytest.mark.parametrize(("link", "target", "command"), LINKS, ids=[f"{c[0]} {n} to {t}" for n, t, c in LINKS])
def test_a_link_leads_nobody_outside(link, target, command, broken, tmp_path):
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "secret").write_text(SECRET)
    shutil.copytree(broken / "checkpoints", outside / "saved")
    place = broken / link
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(outside / target)
    before = contents(outside)
    code, said = rnd(*(broken if word == "RUN" else word for word in command))
    lines = [line for line in said.splitlines() if not line.startswith("checkpoint: ")]
    assert code in (0, 1, 2) and (code == 0 or len(lines) == 1), said
    assert contents(outside) == before
    copied = [p for p in broken.rglob("*") if p.is_file() and not p.is_symlink() and SECRET in p.read_text("latin1")]
    assert not copied


def test_what_replaces_a_part_file_is_a_file_of_its_own(broken, tmp_path):
    """A name that an earlier version used for its temporary file is nothing special any more."""
    victim = tmp_path / "victim"
    victim.write_text(SECRET)
    (broken / ".report.html.part").symlink_to(victim)
    code, said = rnd("report", broken)
    assert code == 0 and (broken / "report.html").stat().st_size > 1000, said
    assert victim.read_text() == SECRET


@pytest.mark.parametrize("out", ["/dev/full", "/dev/null", "/dev/stdout", "FIFO", "FOLDER", "LINK"])
@pytest.mark.parametrize("command", [REPORT, AGENT])
def test_only_files_are_replaced(out, command, broken, tmp_path):
    """As root, a renamed file would take the place of the device for all programs."""
    if out == "FIFO":
        os.mkfifo(tmp_path / "FIFO.safetensors")
    elif out == "FOLDER":
        (tmp_path / "FOLDER.safetensors").mkdir()
    elif out == "LINK":
        (tmp_path / "LINK.safetensors").symlink_to("/dev/full")
    path = Path(out) if out.startswith("/") else tmp_path / f"{out}.safetensors"
    before = path.lstat()
    code, said = rnd(command[0], broken, "--out", path)
    assert code in (1, 2) and said.count("\n") == 1 and str(path) in said
    after = path.lstat()
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)


@pytest.mark.parametrize("name", ["export", "watch", "checkpoints", "tensorboard", "wandb"])
def test_a_folder_below_the_run_may_be_named_with_out_and_is_refused_all_the_same(name, broken, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.rmtree(broken / name, ignore_errors=True)
    (broken / name).symlink_to(outside)
    code, said = rnd("report", broken, "--out", broken / name / "page.html")
    assert code == 2 and f"{broken / name} is a symbolic link" in said and not any(outside.iterdir())
