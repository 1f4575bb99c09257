"""Figures of stored run folders: drawn values equal numpy's, and missing data is stated."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from rnd.report import figure as figures
from rnd.report.figure import Line, Panel, Plot, ReferenceLine, draw
from rnd.report.runs import read_run

STORED = Path(__file__).parent / "stored"


def column(run, name):
    """A column read without our code."""
    with (STORED / run / "metrics.csv").open() as file:
        return np.array([float(row[name] or "nan") for row in csv.DictReader(file)])


def line(label="RND", names=("rnd-s1", "rnd-s2", "rnd-s3"), seeds=3):
    return Line(label, tuple(read_run(STORED / name) for name in names), seeds)


def plot(lines, **options):
    panel = Panel("returns", "return_mean", "mean return", tuple(lines), options.pop("references", ()))
    return Plot("plot", "A title", (panel,), **options)


@pytest.fixture
def drawn(monkeypatch):
    """Catches the matplotlib figures before they become files."""
    caught = []
    original = figures.save
    monkeypatch.setattr(figures, "save", lambda figure, *rest: (caught.append(figure), original(figure, *rest))[1])
    return caught


def words(figure):
    texts = [t.get_text() for ax in figure.axes for t in ax.texts] + [t.get_text() for t in figure.texts]
    return " ".join([*texts, figure.get_supxlabel(), figure.get_suptitle()]).replace("\n", " ")


def test_the_plotted_numbers_are_numpys(tmp_path, drawn):
    paths = draw(plot([line()]), tmp_path)
    assert [path.suffix for path in paths] == [".png", ".svg", ".csv"] and all(path.stat().st_size for path in paths)
    # rnd-s3 is not finished; in the first two rollouts no episode has ended
    known = np.stack([column(name, "return_mean")[2:] for name in ("rnd-s1", "rnd-s2")])
    mean, error = known.mean(axis=0), known.std(axis=0, ddof=1) / np.sqrt(2)
    curve = drawn[0].axes[0].lines[0]
    np.testing.assert_allclose(curve.get_ydata(), mean)
    np.testing.assert_array_equal(curve.get_xdata(), column("rnd-s1", "frames")[2:])
    edge = drawn[0].axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert edge.max() == pytest.approx((mean + error).max()) and edge.min() == pytest.approx((mean - error).min())
    with paths[2].open() as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["mean"]) for row in rows], mean)
    np.testing.assert_allclose([float(row["low"]) for row in rows], mean - error)
    assert {row["runs"] for row in rows} == {"2"} and {row["line"] for row in rows} == {"RND"}


def unfinished(path, iterations):
    """A run of 12 rollouts that was interrupted."""
    shutil.copytree(STORED / "rnd-s1", path)
    rows = (path / "metrics.csv").read_text().splitlines(keepends=True)
    (path / "metrics.csv").write_text("".join(rows[: iterations + 1]))
    return read_run(path)


def test_unfinished_runs_are_left_out_and_stated(tmp_path, drawn):
    draw(plot([line(seeds=5), line("PPO", ("ppo-s1",), 1)]), tmp_path)
    text = words(drawn[0])
    assert "RND: 2 of 5 seeds finished" in text
    assert "seeds end" not in text and "PPO:" not in text
    assert [curve.get_linestyle() for curve in drawn[0].axes[0].lines] == ["-", "-"]


def test_where_no_run_is_finished_the_curve_is_marked(tmp_path, drawn):
    """Also where all runs stopped at the same rollout."""
    runs = tuple(unfinished(tmp_path / name, rows) for name, rows in (("a", 9), ("b", 9), ("c", 6)))
    paths = draw(plot([Line("RND", runs[:2], 3), line("PPO", ("ppo-s1",), 1)]), tmp_path)
    ax = drawn[0].axes[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["RND, unfinished", "PPO"]
    assert [curve.get_linestyle() for curve in ax.lines] == ["--", "-"]
    assert "RND: 0 of 3 seeds finished" in words(drawn[0]) and "PPO:" not in words(drawn[0])
    assert "RND, unfinished" in paths[2].read_text()
    draw(plot([Line("RND", runs, 3)]), tmp_path)
    assert "RND: seeds end between 393,216 and 589,824 frames" in words(drawn[1])


def test_an_arm_without_runs_and_a_folder_without_rows_still_draw(tmp_path, drawn):
    shutil.copytree(STORED / "rnd-s1", tmp_path / "half")
    (tmp_path / "half" / "metrics.csv").write_text("iteration,frames\n1,65")
    draw(plot([Line("RND", (), 5)]), tmp_path)
    assert "RND: 0 of 5 seeds finished" in words(drawn[0]) and "no data yet" in words(drawn[0])
    draw(plot([Line("RND", (read_run(tmp_path / "half"),), 1)]), tmp_path)
    assert "no data yet" in words(drawn[1])


def test_interquartile_means_on_request(tmp_path, drawn):
    paths = draw(plot([line()]), tmp_path, iqm=True)
    assert "interquartile mean" in words(drawn[0])
    with paths[2].open() as file:
        rows = list(csv.DictReader(file))
    both = [column(name, "return_mean")[8] for name in ("rnd-s1", "rnd-s2")]
    assert float(rows[6]["mean"]) == pytest.approx(np.mean(both))  # a quarter of two values is none
    assert min(both) <= float(rows[6]["low"]) <= float(rows[6]["high"]) <= max(both)


def test_reference_lines_far_above_the_curves_become_text(tmp_path, drawn):
    references = (ReferenceLine(5000, "paper: 5,000", "RND"), ReferenceLine(90_000, "paper: 90,000"))
    draw(plot([line()], references=references), tmp_path)
    ax = drawn[0].axes[0]
    assert [float(np.asarray(dashed.get_ydata())[0]) for dashed in ax.lines[1:]] == [5000]
    assert "↑ paper: 90,000 (above this axis)" in words(drawn[0])
    assert ax.lines[1].get_color() == ax.lines[0].get_color()


def test_many_arms_have_room(tmp_path, drawn):
    """22 arms, of which most have no run: they are counted, and the axes stay. Beyond the colours, styles differ."""
    runs = [line(f"arm {i}") if i in (0, 1, 9) else Line(f"arm {i}", (), 2) for i in range(22)]
    draw(plot(runs), tmp_path)
    ax = drawn[0].axes[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["arm 0", "arm 1", "arm 9"]
    assert "19 arms have no run yet" in words(drawn[0]) and "arm 5" not in words(drawn[0])
    assert [curve.get_linestyle() for curve in ax.lines] == ["-", "-", ":"]
    assert ax.lines[1].get_color() == ax.lines[2].get_color()
    draw(plot([line(f"arm {i}") for i in range(20)]), tmp_path)
    assert drawn[1].get_figheight() > drawn[0].get_figheight()
    assert drawn[1].axes[0].get_window_extent().height > 0.4 * drawn[0].axes[0].get_window_extent().height


def test_the_legend_covers_no_curve(tmp_path, drawn):
    draw(plot([line(), line("PPO", ("ppo-s1",), 1)]), tmp_path)
    ax = drawn[0].axes[0]
    assert ax.get_legend().get_window_extent().y1 <= ax.get_window_extent().y0


def test_a_scaled_image_states_its_sizes(tmp_path, drawn):
    draw(plot([line()], scaled="4,096 frames"), tmp_path)
    assert "SCALED" in words(drawn[0]) and "scaled: 4,096 frames; not the paper's experiment" in words(drawn[0])


def test_updates_as_the_horizontal_axis(tmp_path, drawn):
    draw(plot([line()], x="updates"), tmp_path)
    np.testing.assert_array_equal(drawn[0].axes[0].lines[0].get_xdata(), column("rnd-s1", "updates")[2:])


def test_the_same_runs_give_the_same_file(tmp_path):
    first, second = (draw(plot([line()]), tmp_path / name) for name in "ab")
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_the_text_below_a_plot_says_what_a_curve_is():
    one, several = Line("a", (), 1), Line("b", (), 3)
    assert figures.statistic_of([one, one], iqm=False) == "one run per line"
    assert figures.statistic_of([one, several], iqm=False) == "mean over seeds, standard error"
    assert "interquartile" in figures.statistic_of([several], iqm=True)
