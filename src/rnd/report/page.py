"""One self-contained HTML page about runs. It loads nothing from a network, and lists what could not be read."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rnd import __version__
from rnd.record.files import make_folder, read_file, write_atomically
from rnd.record.progress import Trend, count, duration
from rnd.report.aggregate import align, mean_and_error, thin
from rnd.report.chart import Series, line_chart, number
from rnd.report.maps import map_of
from rnd.report.reproduce import command_of, config_table, origin
from rnd.report.runs import Group, Run, game_of, grouped

HERE = Path(__file__).parent
POINTS = 400
"""Largest number of points per line; more rows are averaged in blocks."""
LARGEST_VIDEO = 40 * 2**20
COLOURS = 8
POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""With this policy the browser itself refuses to load anything from elsewhere."""

RESULTS = (
    ("return_mean", "Return", "mean of the last 100 episodes"),
    ("return_best", "Best return", "of any episode so far"),
    ("success", "Success", "share of the last 100 episodes"),
    ("rooms", "Rooms found", ""),
    ("places", "Places found", "(level, room) pairs, or cells of a grid"),
    ("return_int", "Intrinsic return", "discounted sum, scaled"),
    ("bonus_raw", "Bonus", "mean of a rollout, before scaling"),
    ("length_mean", "Episode length", "steps, mean of the last 100"),
)
LEARNING = (
    ("policy_loss", "Policy loss", ""),
    ("value_ext_loss", "Value loss, extrinsic", ""),
    ("value_int_loss", "Value loss, intrinsic", ""),
    ("bonus_loss", "Predictor loss", ""),
    ("entropy", "Entropy", "of the policy"),
    ("approx_kl", "KL divergence", "old policy to new, estimated"),
    ("clip_share", "Clipped share", "of probability ratios"),
    ("frames_per_second", "Frames per second", "of a rollout and its update"),
)


def write_page(runs: Sequence[Run], path: Path, progress: Callable[[str], None] = lambda _: None) -> None:
    """Write the page of one run, or the comparison of several."""
    groups = grouped(list(runs))
    progress("curves")
    sections = [head(runs, groups), warnings(runs), summary(groups), charts("Results", RESULTS, groups)]
    progress("maps")
    sections.append(maps(groups))
    progress("videos")
    sections.append(videos(runs))
    progress("losses")
    sections += [charts("Learning", LEARNING, groups), config_table(groups), reproduce(groups)]
    title = html.escape(title_of(runs, groups))
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{(HERE / 'page.css').read_text()}</style></head><body><main>{''.join(sections)}"
        f"<footer>written by rnd {__version__} on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC</footer></main>"
        f"<script>{(HERE / 'page.js').read_text()}</script></body></html>\n"
    )
    for run in runs:
        make_folder(path.parent, run.path)
    write_atomically(path, text)


def section(name: str, title: str, style: str, items: Sequence[str], before: str = "") -> str:
    """A heading and a box of items with a CSS class; empty where there are no items."""
    body = "".join(items)
    return f'<section id="{name}"><h2>{title}</h2>{before}<div class="{style}">{body}</div></section>' if body else ""


def title_of(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    if len(runs) == 1:
        return runs[0].name
    games = ", ".join(sorted({game_of(run.config) for run in runs if run.config})) or "runs"
    return f"{games}: {len(runs)} runs" + (f" of {len(groups)} experiments" if len(groups) > 1 else "")


def head(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    done = sum(run.finished for run in runs)
    state = "finished" if done == len(runs) else f"{done} of {len(runs)} runs finished"
    config = runs[0].config if runs else None
    words = f"{html.escape(config.env.id)} · {html.escape(config.bonus)} · {config.policy}" if config else "unknown run"
    if len(groups) > 1:
        words = ", ".join(sorted({html.escape(run.config.env.id) for run in runs if run.config})) or words
    title = html.escape(title_of(runs, groups))
    return f'<header><p>{words} <span class="state">{state}</span></p><h1>{title}</h1></header>'


def warnings(runs: Sequence[Run]) -> str:
    found = [(run, text) for run in runs for text in run.warnings]
    if not found:
        return ""
    items = "".join(f"<li>{html.escape((run.name + ': ' if len(runs) > 1 else '') + text)}</li>" for run, text in found)
    return f'<div class="warnings" role="alert"><strong>Missing or incomplete data</strong><ul>{items}</ul></div>'


def summary(groups: Sequence[Group]) -> str:
    cards = []
    for i, group in enumerate(groups):
        tiles = "".join(f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts(group))
        heading = f"<h3>{key(i)}{html.escape(group.label)}</h3>"
        cards.append(f'<article class="card">{heading}<dl class="tiles">{tiles}</dl></article>')
    return section("summary", "Summary", "cards", cards)


def facts(group: Group) -> list[tuple[str, str]]:
    """(name, value) pairs of the summary at the end of training: means over seeds, or the best value of any seed."""

    def values(name: str) -> np.ndarray:
        found = np.array([run.last(name) for run in group.runs])
        return np.asarray(found[np.isfinite(found)])

    found = [("runs", str(len(group.runs)))] if len(group.runs) > 1 else []
    if len(values("frames")):
        found.append(("frames", count(float(values("frames").max()))))
    for name, title in (("return_mean", "return, last 100"), ("success", "success, last 100")):
        if len(values(name)):
            mean = float(values(name).mean())
            found.append((title, f"{mean:.0%}" if name == "success" else f"{mean:,.2f}"))
    for name in ("return_best", "rooms", "places", "episodes"):
        if len(values(name)) and values(name).max() != 0:
            found.append(("best return" if name == "return_best" else name, number(float(values(name).max()))))
    speeds = [run.timing["frames_per_second"] for run in group.runs if len(run.timing.get("frames_per_second", ()))]
    if speeds:
        found.append(("frames/s", count(float(np.median(np.concatenate(speeds))))))
        seconds = [float(np.nansum(run.timing["seconds"])) for run in group.runs if "seconds" in run.timing]
        found += [("training time", duration(max(seconds)))] if seconds else []
    return [*found, *(Trend(group.runs[0].metrics).texts() if len(group.runs) == 1 else [])]


def key(i: int) -> str:
    return f'<span class="key s{i % COLOURS}"></span>'


def legend(groups: Sequence[Group]) -> str:
    if len(groups) < 2:
        return ""
    items = "".join(f"<li>{key(i)}{html.escape(group.label)}</li>" for i, group in enumerate(groups))
    return f'<ul class="legendbar">{items}</ul>'


def series_of(groups: Sequence[Group], column: str) -> list[Series]:
    """One line per group: the mean over its runs with the standard error, and every run behind it."""
    found = []
    for i, group in enumerate(groups):
        data = []
        for run in group.runs:
            y = (run.timing | run.metrics).get(column, np.empty(0))
            x = run.metrics.get("frames", np.empty(0))
            rows = min(len(x), len(y))
            if rows and np.isfinite(y[:rows]).any():
                data.append((x[:rows], y[:rows]))
        curve = thin(mean_and_error(*align(data)), POINTS)
        behind = [thin(mean_and_error(*align([pair])), POINTS) for pair in data] if len(data) > 1 else []
        found.append(Series(group.label, i % COLOURS, curve, tuple((c.x, c.mean) for c in behind)))
    return found


def charts(title: str, columns: Sequence[tuple[str, str, str]], groups: Sequence[Group]) -> str:
    drawn = []
    for column, name, text in columns:
        series = series_of(groups, column)
        if column not in ("rooms", "places") or any(s.curve.mean.any() for s in series):
            drawn.append(line_chart(name, series, text))
    many = any(len(group.runs) > 1 for group in groups)
    note = " <small>mean over runs, standard error shaded, runs behind</small>" if many else ""
    return section(title.lower(), title + note, "charts", drawn, legend(groups))


def maps(groups: Sequence[Group]) -> str:
    cards = [
        f'<article class="card"><h3>{key(i)}{html.escape(group.label)}</h3>{body}<p class="said"></p></article>'
        for i, group in enumerate(groups)
        if (body := map_of(group))
    ]
    switch = (
        '<div class="switch" role="group" aria-label="colour">'
        '<button value="when" aria-pressed="true">when first entered</button>'
        '<button value="often" aria-pressed="false">how often</button></div>'
    )
    return section("map", "Where it has been", "maps", cards, switch)


def videos(runs: Sequence[Run]) -> str:
    shown = []
    for run in runs:
        path = run.video
        if path is None:
            continue
        name = f"<h3>{html.escape(run.name)}</h3>" if len(runs) > 1 else ""
        strip = path.with_suffix(".png")
        try:
            body = f'<video controls muted playsinline preload="auto" src="{data_url(path, "video/mp4")}"></video>'
            if strip.exists():
                url = data_url(strip, "image/png")
                body += f'<img class="strip" alt="the bonus and the frames at its spikes" src="{url}">'
        except OSError as error:
            body = f"<p>{html.escape(str(error.filename))} is not shown: {html.escape(str(error.strerror))}</p>"
        shown.append(f'<article class="card">{name}{body}</article>')
    return section("video", "An episode and its bonus", "shows", shown)


def data_url(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(read_file(path, LARGEST_VIDEO)).decode()}"


def reproduce(groups: Sequence[Group]) -> str:
    parts = []
    for i, group in enumerate(groups):
        known = [run for run in group.runs if run.config]
        if not known:
            continue
        lines = [command_of(run.config) for run in known if run.config]
        heading = f"<h3>{key(i)}{html.escape(group.label)}</h3>" if len(groups) > 1 else ""
        parts.append(f"{heading}<pre>{html.escape(chr(10).join(lines))}</pre>{origin(known[0])}")
    if not parts:
        return ""
    note = "<p><small>The same version, seed and kind of device give the same numbers.</small></p>"
    return f'<section id="reproduce"><h2>How to reproduce it</h2>{"".join(parts)}{note}</section>'
