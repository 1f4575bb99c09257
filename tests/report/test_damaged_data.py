"""Whatever the files of a run hold, a page is written: with a warning, or without what cannot be drawn."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path

import pytest

from rnd.report.page import write_page
from rnd.report.runs import read_run

STORED = Path(__file__).parent / "stored"
VALUES = [None, True, -1, 0, 2**70, 10**400, 1.5, 1e308, float("inf"), float("nan"), "", "x" * 50, [], {}, [[]]]
CELLS = ["nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "", "x", "0", "-5", "9" * 400]


def retype(path: Path, rng: random.Random) -> None:
    """Another value at a random place of a JSON file."""
    data = json.loads(path.read_text())
    at = data
    while isinstance(at, dict | list) and at:
        key = rng.choice([*at]) if isinstance(at, dict) else rng.randrange(len(at))
        if not isinstance(at[key], dict | list) or not at[key] or rng.random() < 0.3:
            at[key] = rng.choice(VALUES)
            break
        at = at[key]
    path.write_text(json.dumps(data))


def rewrite(path: Path, rng: random.Random) -> None:
    """Other cells, a column of one value, or rows in another order."""
    header, *rows = (line.split(",") for line in path.read_text().splitlines())
    kind, column, value = rng.randrange(3), rng.randrange(len(header)), rng.choice(CELLS)
    for row in rng.sample(rows, 3) if kind == 0 else rows if kind == 1 else []:
        row[column] = value
    if kind == 2:
        rows = [*rng.sample(rows, rng.randrange(len(rows))), header, rows[0], rows[0][:2]]
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")


@pytest.mark.parametrize("number", range(40))
def test_a_page_is_written_whatever_the_data(number, tmp_path):
    rng = random.Random(number)
    names = rng.sample(["minigrid-s1", "pitfall-s1", "ppo-s1", "rnd-s1"], rng.choice([1, 2]))
    paths = [Path(shutil.copytree(STORED / name, tmp_path / name)) for name in names]
    file = paths[0] / ("config.json", "metrics.csv", "run.json", "timing.csv", "rooms.json")[number % 5]
    (retype if file.suffix == ".json" else rewrite)(file, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_page([read_run(path) for path in paths], tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")
