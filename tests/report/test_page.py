"""The page as text: complete and self-contained; incomplete folders give a partial page."""

import html
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rnd import cli
from rnd.config import Config
from rnd.presets import preset
from rnd.report.aggregate import mean_and_error
from rnd.report.chart import Series, line_chart, ticks
from rnd.report.maps import PYRAMID, map_of, visits
from rnd.report.page import write_page
from rnd.report.reproduce import command_of
from rnd.report.runs import Group, grouped, read_run

STORED = Path(__file__).parent / "stored"


def page_of(tmp_path, *paths):
    write_page([read_run(Path(path)) for path in paths], tmp_path / "report.html")
    return (tmp_path / "report.html").read_text()


def test_the_page_has_all_its_parts_and_loads_nothing(tmp_path):
    text = page_of(tmp_path, STORED / "rnd-s1")
    for part in ("summary", "results", "map", "learning", "config", "reproduce"):
        assert f'id="{part}"' in text
    assert "http://" not in text and "https://" not in text and "src=" not in text
    assert 'class="warnings"' not in text


def test_the_command_writes_the_page_and_prints_where(tmp_path, capsys):
    shutil.copytree(STORED / "rnd-s3", tmp_path / "run")
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", str(tmp_path / "run")])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert "rollout 9 of 12" in said and said.strip().endswith("report.html")
    assert "rollout 9 of 12" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("name", ["config.json", "run.json", "rooms.json", "metrics.csv", "timing.csv", "all"])
@pytest.mark.parametrize("cut", [0, 40])
def test_half_written_folders_give_a_partial_page(tmp_path, name, cut):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
        if path.name == name or name == "all":
            path.write_bytes(path.read_bytes()[:cut])
    text = page_of(tmp_path, tmp_path / "run")
    assert text.endswith("</html>\n")
    warnings = read_run(tmp_path / "run").warnings
    assert warnings or name == "timing.csv"
    assert all(html.escape(warning) in text for warning in warnings)


def test_names_are_escaped(tmp_path):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "<script>alert(1)")
    text = page_of(tmp_path, tmp_path / "<script>alert(1)")
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text


def test_the_pyramid_has_24_rooms_in_their_places():
    """Checked in the emulator: a room is below the one whose ladder leads down to it."""
    assert sorted(room for row in PYRAMID for room in row) == list(range(24))
    place = {room: (row, column + 3 - row) for row, rooms in enumerate(PYRAMID) for column, room in enumerate(rooms)}
    for above, below in ((2, 6), (7, 13), (13, 21)):
        assert place[below] == (place[above][0] + 1, place[above][1])
    for left, right in ((0, 1), (1, 2), (5, 6), (6, 7), (12, 13), (21, 22)):
        assert place[right] == (place[left][0], place[left][1] + 1)
    drawn = map_of(grouped([read_run(STORED / "rnd-s1")])[0])
    assert len(re.findall(r'data-room="\d+"', drawn)) == 24
    assert drawn.count('class="room seen"') == 17 and "17 of 24 rooms" in drawn


def test_a_second_level_is_a_second_pyramid():
    run = read_run(STORED / "rnd-s1")
    run.places[256 + 1] = (700_000, 2)
    drawn = map_of(Group("x", (run,)))
    assert len(re.findall(r'data-room="\d+"', drawn)) == 48 and "Level 2: 1 of 24 rooms" in drawn


def test_visits_of_seeds_are_merged():
    runs = [read_run(STORED / f"rnd-s{seed}") for seed in (1, 2, 3)]
    merged = visits(Group("x", tuple(runs)))
    assert merged[1].times == sum(run.places[1][1] for run in runs)
    assert merged[1].first == min(run.places[1][0] for run in runs)
    assert (merged[19].runs, merged[19].of) == (1, 3)


def test_pitfall_is_a_list_and_a_grid_has_cells():
    pitfall = map_of(grouped([read_run(STORED / "pitfall-s1")])[0])
    assert pitfall.count("<li") == 11
    grid = map_of(grouped([read_run(STORED / "minigrid-s1")])[0])
    assert grid.count("<rect") == 45 and "45 cells visited" in grid


def test_a_chart_contains_its_numbers():
    curve = mean_and_error(np.array([1.0, 2, 3]), np.array([[1.0, 4.0, 9.0]]))
    chart = line_chart("A & B", [Series("x", 0, curve)])
    assert "A &amp; B" in chart and '"y": [1.0, 4.0, 9.0]' in chart
    assert line_chart("nothing", [Series("x", 0, mean_and_error(np.empty(0), np.empty((0, 0))))]) == ""


def test_constant_single_and_wide_measures_can_be_drawn():
    for values in ([0.0], [5.0, 5.0], [1e-6, 1.0, 1e6], [-3.0, 2.0]):
        chart = line_chart("x", [Series("x", 0, mean_and_error(np.arange(len(values)) + 1.0, np.array([values])))])
        assert "nan" not in chart and "inf" not in chart
        assert ("log scale" in chart) == (max(values) == 1e6)


def test_ticks_are_round():
    assert ticks(0, 100, 4) == [0, 25, 50, 75, 100]
    assert ticks(-0.02, 0.03, 4) == pytest.approx([-0.02, 0, 0.02])


CHANGES = [
    {},
    {"seed": 5, "lr": 3e-4, "policy": "gru", "episodic_int": True, "clip_reward": False},
    {"gamma_int": 0.999, "ext_coef": 0.0, "threads": 2},
]


@pytest.mark.parametrize("game", ["montezuma", "MiniGrid-MultiRoom-N4-S5-v1", "ALE/Breakout-v5"])
@pytest.mark.parametrize("changes", CHANGES)
def test_the_command_reproduces_the_config(game, changes):
    config = replace(preset(game), **changes)
    config = replace(config, env=replace(config.env, num_envs=12, workers=3))
    words = shlex.split(command_of(config))
    assert words[:3] == ["rnd", "train", game]
    assert cli.parse(Config, words[3:], prog="x", description="", default=preset(words[2])) == config
