"""The page as text: complete and self-contained; incomplete folders give a partial page."""

import html
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rnd import cli
from rnd.config import Config
from rnd.config.presets import preset
from rnd.foundation.text import count
from rnd.report.aggregate import mean_and_error
from rnd.report.chart import Series, line_chart, ticks
from rnd.report.maps import PYRAMID, map_of, visits
from rnd.report.markup import Html, markup
from rnd.report.page import facts, write_page
from rnd.report.reproduce import command_of
from rnd.report.runs import Group, grouped, read_run

STORED = Path(__file__).parent / "stored"


def page_of(tmp_path, *paths):
    write_page([read_run(Path(path)) for path in paths], tmp_path / "report.html")
    return (tmp_path / "report.html").read_text()


def test_the_page_has_all_its_parts_and_loads_nothing(tmp_path):
    text = page_of(tmp_path, STORED / "rnd-s1")
    for part in ("summary", "results", "map", "learning", "config", "reproduce"):
        assert f'<section class="{part}">' in text
    assert "http://" not in text and "https://" not in text and "src=" not in text
    assert 'class="warnings"' not in text


def test_the_command_writes_the_page_and_prints_where(tmp_path, capsys):
    shutil.copytree(STORED / "rnd-s3", tmp_path / "run")
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", str(tmp_path / "run")])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    words = "unfinished: 589,824 of 786,432 frames"
    assert words in said and said.strip().endswith("report.html")
    text = (tmp_path / "run" / "report.html").read_text()
    assert words in text and 'class="warnings"' not in text  # a run that was stopped is nothing to be warned of


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


def test_a_best_return_of_zero_is_a_result(tmp_path):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "run")
    head, *rows = (tmp_path / "run/metrics.csv").read_text().splitlines()
    columns, last = head.split(","), rows[-1].split(",")
    last[columns.index("return_best")] = last[columns.index("rooms")] = "0"
    (tmp_path / "run/metrics.csv").write_text("\n".join([head, *rows[:-1], ",".join(last)]) + "\n")
    found = dict(facts(*grouped([read_run(tmp_path / "run")])))
    assert found["best return"] == "0" and "rooms" not in found


def test_what_is_the_most_of_several_runs_says_so():
    runs = [read_run(STORED / name) for name in ("rnd-s1", "rnd-s2")]
    one, both = dict(facts(Group("rnd", runs[:1], 0))), dict(facts(Group("rnd", runs, 0)))
    most = {name: str(int(max(run.last(name) for run in runs))) for name in ("rooms", "places")}
    assert one["rooms"] == f"{runs[0].last('rooms'):.0f}" and "rooms, most of a run" not in one
    assert both["rooms, most of a run"] == most["rooms"] and "rooms" not in both and "best return" in both


def test_names_are_escaped(tmp_path):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "<script>alert(1)")
    text = page_of(tmp_path, tmp_path / "<script>alert(1)")
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text


def test_only_our_own_script_and_style_are_allowed(tmp_path):
    text = page_of(tmp_path, STORED / "rnd-s1", STORED / "minigrid-s1", STORED / "pitfall-s1")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "unsafe" not in policy and policy.count("'sha256-") == 2 and "default-src 'none'" in policy
    assert " style=" not in text and not re.search(r"<[^>]* on\w+=", text)


def test_every_value_is_escaped_but_our_own_html():
    assert markup("<p>{}{:.1f}{}</p>", "<b>&\"'", 1.25, Html("<br>")) == "<p>&lt;b&gt;&amp;&quot;&#x27;1.2<br></p>"
    assert markup("{}", ["<", Html("<i>")]) == "&lt;<i>" and markup("{}", None) == "None"


def data_of(text, title):
    """The numbers of all charts with a title."""
    found = re.findall(rf"<figcaption>{title}.*?json\">(.*?)</script>", text)
    return [json.loads(one) for one in found]


def test_environments_have_panels_of_their_own_and_the_title_is_short(tmp_path):
    names = ("rnd-s1", "minigrid-s1", "ppo-s1", "pitfall-s1", "rnd-s2")
    text = page_of(tmp_path, *(STORED / name for name in names))
    assert re.findall(r"<h2>(.*?)</h2>", text) == [
        "ALE/MontezumaRevenge-v5",
        "MiniGrid-MultiRoom-N4-S5-v1",
        "ALE/Pitfall-v5",
    ]
    assert "<h1>5 runs in 3 environments</h1>" in text
    lines = [[line["label"] for line in chart] for chart in data_of(text, "Return")]
    assert lines == [["rnd", "none"], ["rnd"], ["rnd"]]
    (runs,) = [line["runs"] for line in data_of(text, "Return")[0] if line["label"] == "rnd"]
    assert set(runs) == {2} and text.count('class="band s0 t0"') > 0  # the interval over two seeds


def test_an_unfinished_run_is_drawn_apart_from_the_mean_of_the_finished_ones(tmp_path):
    text = page_of(tmp_path, *(STORED / f"rnd-s{seed}" for seed in (1, 2, 3)))
    known = [read_run(STORED / f"rnd-s{seed}").metrics["return_mean"][2:] for seed in (1, 2)]
    (chart,) = data_of(text, "Return")
    np.testing.assert_allclose(chart[0]["y"], np.mean(known, axis=0), rtol=1e-5)
    assert set(chart[0]["runs"]) == {2}
    assert "2 of 3 finished" in text and "1 unfinished: dashed in the charts" in text
    charts = len(re.findall("<figure class=.chart.>", text))
    assert len(re.findall(r'class="seed s0 t0 open"', text)) == charts
    last = [run[-1] for run in known]
    error = np.std(last, ddof=1) / np.sqrt(2)
    assert f"{np.mean(last):,.2f} ± {error:,.2f}" in text


def test_a_group_without_finished_runs_is_marked(tmp_path):
    text = page_of(tmp_path, STORED / "rnd-s3", STORED / "ppo-s1")
    assert "rnd, unfinished" in text and 'class="mean s0 t0 open"' in text and 'class="mean s1 t0 "' in text


def test_rooms_and_places_are_one_chart_until_a_second_level_is_reached(tmp_path):
    text = page_of(tmp_path, STORED / "rnd-s1")
    assert "Rooms found" in text and "Places found" not in text and "<dt>places</dt>" not in text
    run = read_run(STORED / "rnd-s1")
    run.metrics["places"] = run.metrics["rooms"] + np.arange(12)
    write_page([run], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Places found" in text and "<dt>places</dt>" in text
    run.metrics["rooms"] = np.zeros(12)  # the places are cells, of layouts that change
    run.metrics["places_mean"] = np.linspace(1, 9.5, 12)
    write_page([run], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Places found" not in text and "<dt>places</dt>" not in text
    assert "Places per episode" in text and '<dt>places per episode</dt><dd class="">9.50</dd>' in text


def test_the_map_of_a_grid_says_what_is_laid_over_what():
    changing = map_of(grouped([read_run(STORED / "minigrid-s1")])[0])
    assert "Every episode has another layout, and all are laid over each other" in changing
    assert changing.count('<img class="layout"') == 1
    run = read_run(STORED / "minigrid-s1")
    run.config = preset("MiniGrid-Empty-8x8-v0")
    assert "The layout is the same in every episode" in map_of(Group("x", (run,)))


@pytest.mark.parametrize("env_id", ["MiniGrid-none:make", "MiniGrid-Unknown-v0"])
def test_a_map_imports_nothing_that_a_config_names(env_id, tmp_path, monkeypatch):
    (tmp_path / "MiniGrid-none.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = read_run(STORED / "minigrid-s1")
    run.config = preset(env_id)
    drawn = map_of(Group("x", (run,)))
    assert ("All episodes are laid over each other" in drawn) == (":" not in env_id)  # a factory may be anything
    assert "<img" not in drawn


def test_large_numbers_have_no_empty_decimals():
    assert [count(x) for x in (1e8, 2.5e6, 1.966e9, 999_999)] == ["100 M", "2.5 M", "1.97 G", "999,999"]
    curve = mean_and_error(np.array([1e8, 4e8]), np.ones((1, 2)))
    assert ">100 M<" in line_chart("x", [Series("x", 0, curve)])


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
    assert drawn.count('class="room seen ') == 17 and "17 of 24 rooms" in drawn


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


def test_the_overview_has_no_empty_column(tmp_path):
    both = (STORED / "rnd-s1", STORED / "pitfall-s1")
    assert "<th>best</th>" in page_of(tmp_path, *both) and "<th>success</th>" not in page_of(tmp_path, *both)
    runs = [read_run(path) for path in both]
    runs[0].metrics["success"] = np.full(12, 0.5)
    write_page(runs, tmp_path / "report.html")
    assert "<th>success</th>" in (tmp_path / "report.html").read_text()
