"""The ledger: rows of run folders, the table in results/README.md, and the image."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rnd.config import Config
from rnd.config.presets import preset
from rnd.config.recipes import with_recipe
from rnd.foundation.errors import UserError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("ledger")


@pytest.fixture
def run(tmp_path) -> Path:
    """A run of 150 million frames: its mean is its frames in millions."""
    folder = tmp_path / "venture-x"
    folder.mkdir()
    config = Config.from_dict(preset("venture").to_dict() | {"minibatches": 16, "overlap": True, "seed": 5})
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    command = ["/a/b/rnd", "train", "venture", "--out", "/a/b", "--seed", "5"]
    (folder / "run.json").write_text(json.dumps({"command": command, "git": {"commit": "0123456789"}}))
    lines = [f"{i},{i * 10_000_000},{i * 10},{i * 20},3" for i in range(1, 16)]
    (folder / "metrics.csv").write_text("\n".join(["iteration,frames,return_mean,return_best,rooms", *lines]) + "\n")
    (folder / "timing.csv").write_text("\n".join(["iteration,seconds", *(f"{i},6" for i in range(1, 16))]) + "\n")
    return folder


def test_the_row_of_a_run(ledger, run):
    row = ledger.row_of(run)
    assert tuple(row) == ledger.COLUMNS
    wanted = {
        "run": "venture-x",
        "game": "venture",
        "policy": "cnn",
        "recipe": "minibatches=16, overlap",
        "command": "rnd train venture --seed 5",
        "commit": "0123456",
        "seed": "5",
        "frames": "150000000",
        "mean_50": "50",
        "mean_100": "100",
        "mean_200": "",
        "mean_500": "",
        "best": "300",
        "rooms": "3",
        "minutes": "1.50",
        "mean_last": "150",
    }
    assert row | wanted == row
    (run / "metrics.csv").unlink()
    with pytest.raises(UserError, match="it is no run folder"):
        ledger.row_of(run)


def test_recipes_have_names_and_other_settings_are_listed(ledger):
    paper = preset("venture")
    assert ledger.recipe(paper) == ledger.recipe(replace(paper, policy="gru", frames=1)) == "paper"
    assert ledger.recipe(with_recipe(paper, "efficient")) == "efficient"
    assert ledger.recipe(replace(paper, bonus_half_life=2.0**20, int_coef=4.0)) == "int_coef=4, bonus_half_life=1048576"
    snd = with_recipe(paper, "snd")
    assert ledger.recipe(snd) == "snd"
    assert ledger.recipe(replace(snd, episodic_int=True)) == "snd, episodic_int"
    assert ledger.recipe(replace(snd, bonus_scale=1.0)) == "snd, bonus_scale=1"
    public = replace(snd, bonus="rnd", bonus_scale=1.0)
    assert ledger.recipe(replace(public, overlap=True)) == "public, overlap"
    assert ledger.recipe(replace(public, bonus="drnd")) == "public, bonus=drnd"


def test_rows_are_added_or_replaced(ledger, run, monkeypatch):
    for notes in ("first", ""):
        monkeypatch.setattr("sys.argv", ["ledger.py", "row", str(run), "--append", "--notes", notes])
        monkeypatch.chdir(run.parent)
        (run.parent / "results").mkdir(exist_ok=True)
        assert ledger.main() == 0
    rows = ledger.read_ledger(run.parent / "results" / "ledger.csv")
    assert [(row["run"], row["notes"]) for row in rows] == [("venture-x", "first")]


def test_the_table_stands_between_its_markers(ledger, run):
    page = run.parent / "README.md"
    page.write_text(f"before\n{ledger.START}\nold\n{ledger.END}\nafter\n")
    ledger.write_table(page, ledger.table([ledger.row_of(run, "a note")], run.parent))
    text = page.read_text()
    assert "old" not in text and text.startswith("before\n") and text.endswith("\nafter\n")
    assert "| 5 | 150 M | 50 | 100 |  |  |  | 150 | 300 | 3 |  |  | 1.5 | 1,666,667 | 1,859 |" in text
    assert "- venture-x: a note" in text
    page.write_text("no markers")
    with pytest.raises(UserError, match="between which the table stands"):
        ledger.write_table(page, "")


def test_the_paper_is_compared_with_its_own_methods(ledger):
    recipes = "paper", "bonus=none, overlap", "bonus=snd-v", "snd, overlap"
    assert [ledger.method({"recipe": recipe}) for recipe in recipes] == ["RND", "PPO", "", ""]


def test_the_curve_of_a_run_without_a_folder_is_kept(ledger, run, monkeypatch):
    results = run.parent / "results"
    results.mkdir()
    monkeypatch.chdir(run.parent)
    monkeypatch.setattr("sys.argv", ["ledger.py", "row", str(run), "--append", "--name", "other"])
    assert ledger.main() == 0
    (row,) = ledger.read_ledger(results / "ledger.csv")
    kept = ledger.curve(row, results, 1e9)
    assert kept.metrics["frames"].tolist() == [i * 10e6 for i in range(1, 16)]
    assert kept.metrics["return_mean"].tolist() == [i * 10 for i in range(1, 16)]
    panels = {panel.title: panel for panel in ledger.panels([row | {"game": "montezuma"}], results)}
    assert [len(panel.lines) for panel in panels.values()] == [1, 1, 2, 1]  # beside the public mean


def test_our_curves_stand_beside_public_ones(ledger, run, tmp_path):
    panel = ledger.panel("venture", "Venture", [ledger.row_of(run)], run.parent, 120e6)
    public, own = panel.lines
    assert public.label == "public, CNN, mean of 3 runs" and own.label == "x"
    assert own.runs[0].metrics["frames"].max() == 120e6 >= public.runs[0].metrics["frames"].max()
    assert [line.label for line in panel.references] == ["paper, GRU: RND 1,859"]
    row = ledger.row_of(run)
    known = ledger.curve(row, tmp_path / "elsewhere", 1e9)  # its curve is not kept
    assert known.metrics["return_mean"].tolist() == [50, 100, 150]


def test_the_means_of_the_public_runs(ledger):
    rows = [row for row in ledger.read_ledger(ledger.ANCHORS) if row["game"] == "montezuma"]
    at = {million: next(row for row in rows if float(row["frames"]) >= million * 1e6) for million in (100, 300, 500)}
    assert [float(row["mean"]) for row in at.values()] == pytest.approx([1793, 5190, 6084], abs=0.5)
    assert {row["runs"] for row in rows} == {"6"}


def test_the_ledger_and_its_table_belong_together(ledger):
    path = ROOT / "results" / "ledger.csv"
    if not path.exists():
        pytest.skip("the source distribution has no results")
    rows = ledger.read_ledger(path)
    assert tuple(rows[0]) == ledger.COLUMNS and len({row["run"] for row in rows}) == len(rows)
    assert {folder.parent.name for folder in (ROOT / "results").glob("*/config.json")} <= {row["run"] for row in rows}
    assert ledger.table(rows, ROOT / "results").rstrip() in (ROOT / "results" / "README.md").read_text()
