"""What the docs name exists: files, tests, links. Lines are short enough to read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pages import FILES
from rnd.config import Config

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*/README.md")]
CODE = [path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
TESTS = {name for path in CODE for name in re.findall(r"def (test_\w+)", path.read_text())}
OTHERS = {"ppo_rnd_envpool.py"}
"""Files of other projects."""

pages = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


@pages
def test_files_that_are_named_exist(page):
    if page.name in ("CHANGELOG.md", "log.md"):  # they also name what is gone
        return
    known = {path.name for path in CODE} | OTHERS | {*FILES}
    named = {Path(name).name for name in re.findall(r"[\w/]+\.py\b", page.read_text())}
    assert not {name for name in named - known if "NAME" not in name}


@pages
def test_tests_that_are_named_exist(page):
    named = set(re.findall(r"::(test_\w+)", page.read_text()))
    assert not named - TESTS


@pages
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


@pages
def test_lines_are_at_most_120_characters(page):
    assert not [line for line in page.read_text().splitlines() if len(line) > 120 and "](http" not in line]


def test_docstrings_begin_with_their_subject():
    """A value is "the size of a file", and not "of a file": the name before it is in another line."""
    files = [path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    begin = '"' * 3 + "Of "
    assert len(files) > 300 and not [path.name for path in files if begin in path.read_text()]


def test_every_fault_is_listed_and_names_a_test_that_exists():
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ((?:long: )?`[\w/]+\.py::.*) \|$", page, re.MULTILINE)
    faults = re.findall(r"^\| (\d+) \| (?!`|long: )", page, re.MULTILINE)
    assert {int(number) for number in faults} == {int(number) for number, _ in rows} == {*range(1, 53)}
    for file, test in re.findall(r"`([\w/]+\.py)::(test_\w+)", page):
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"


def test_the_papers_hyperparameters_are_the_defaults():
    page = (ROOT / "docs" / "paper-to-code.md").read_text()
    rows = re.findall(r"^\| .* \| ([\d.,]+) \| `--([\w.-]+)` \|$", page, re.MULTILINE)
    assert len(rows) == 16
    for value, flag in rows:
        assert float(Config().flat()[flag.replace("-", "_")]) == float(value.replace(",", "")), flag


def test_every_run_in_results_has_its_files_and_its_score_on_the_card():
    runs = [path.parent for path in ROOT.glob("results/*/README.md")]
    if not runs:
        pytest.skip("the source distribution has no results")
    files = ("config.json", "run.json", "metrics.csv", "timing.csv", "evaluation.json", "trace.json", "episode.png")
    assert not [str(run / name) for run in runs for name in files if not (run / name).is_file()]
    assert sum(path.stat().st_size for path in ROOT.glob("results/**/*") if path.is_file()) < 45_000_000
    for run in runs:
        score = json.loads((run / "evaluation.json").read_text())["mean_return"]
        card = (run / "README.md").read_text()
        assert card.startswith("---\nlibrary_name: rnd\n") and f"name: mean_reward, value: {score:.2f} +/- " in card
        assert len((run / "metrics.csv").read_text().splitlines()) <= 1001
