"""One self-contained HTML page about runs. It loads nothing from a network, and lists what could not be read.

The page has one section per environment: summary, curves, maps and videos of its runs, their config and commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rnd import __version__
from rnd.foundation import statistics
from rnd.foundation.files import make_folder, read_file, write_atomically
from rnd.foundation.text import count, duration
from rnd.metrics.health import RunHealth
from rnd.metrics.progress import Trend
from rnd.report.aggregate import align, mean_and_error, thin
from rnd.report.chart import Seed, Series, colour_class, line_chart, number
from rnd.report.maps import map_of, style
from rnd.report.markup import Html, content_policy, data_url, markup
from rnd.report.reproduce import command_of, config_table, origin
from rnd.report.runs import Group, Run, game_of, grouped

HERE = Path(__file__).parent
POINTS = 400
"""Largest number of points per line; more rows are averaged in blocks."""
MAX_VIDEO = 40 * 2**20

RESULTS = (
    ("return_mean", "Return", "mean of the last 100 episodes"),
    ("return_best", "Best return", "of any episode so far"),
    ("success", "Success", "share of the last 100 episodes"),
    ("rooms", "Rooms found", ""),
    ("places", "Places found", "(level, room) pairs"),
    ("places_mean", "Places per episode", "rooms, or cells of a grid; mean of the last 100 episodes"),
    ("return_int", "Intrinsic return", "discounted sum, scaled"),
    ("bonus_raw", "Bonus", "mean of a rollout, before scaling"),
    ("bonus_spread", "Spread of the bonus", "std over a rollout / mean; near 0 it says nothing about states"),
    ("bonus_share", "Share of the bonus", "in the std of the weighted returns"),
    ("length_mean", "Episode length", "steps, mean of the last 100"),
)
LEARNING = (
    ("policy_loss", "Policy loss", ""),
    ("value_ext_loss", "Value loss, extrinsic", ""),
    ("value_int_loss", "Value loss, intrinsic", ""),
    ("bonus_loss", "Predictor loss", ""),
    ("entropy", "Entropy", "of the policy"),
    ("approx_kl", "KL divergence", "old policy to new, estimated"),
    ("clip_fraction", "Clip fraction", "of probability ratios"),
    ("frames_per_second", "Frames per second", "of a rollout and its update"),
)


def write_page(runs: Sequence[Run], path: Path, progress: Callable[[str], None] = lambda _: None) -> None:
    """Write the page of one run, or the comparison of several."""
    groups = grouped(list(runs))
    by_env: dict[str, list[Group]] = {}
    for group in groups:
        by_env.setdefault(group.env_id, []).append(group)
    sections = [head(runs, by_env), warnings(runs), overview(by_env)]
    for i, (env_id, own) in enumerate(by_env.items(), 1):
        progress(f"environment {i} of {len(by_env)}")
        line = '<section class="environment" id="env-{}"><h2>{}</h2>{}</section>'
        sections.append(markup(line, i, env_id, environment(own, alone=len(by_env) == 1)))
    styles, script = (HERE / "page.css").read_text() + style(), (HERE / "page.js").read_text()
    text = markup(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<style>{styles}</style></head><body><main>{sections}"
        "<footer>written by rnd {version} on {date} UTC</footer></main>"
        "<script>{script}</script></body></html>\n",
        title=title_of(runs, by_env),
        policy=content_policy(script, styles),
        styles=Html(styles),
        sections=sections,
        version=__version__,
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        script=Html(script),
    )
    for run in runs:
        make_folder(path.parent, run.path)
    write_atomically(path, text)


def title_of(runs: Sequence[Run], by_env: dict[str, list[Group]]) -> str:
    if len(runs) == 1:
        return runs[0].name
    if len(by_env) > 1:
        return f"{len(runs)} runs in {len(by_env)} environments"
    game = next((game_of(run.config) for run in runs if run.config), "unknown")
    return f"{game}: {len(runs)} runs"


def head(runs: Sequence[Run], by_env: dict[str, list[Group]]) -> Html:
    done = sum(run.finished for run in runs)
    state = "finished" if done == len(runs) else f"{done} of {len(runs)} runs finished"
    links = [markup('<a href="#env-{}">{}</a>', i, env_id) for i, env_id in enumerate(by_env, 1)]
    return markup(
        '<header><h1>{}</h1><p><span class="state">{}</span>{}</p></header>',
        title_of(runs, by_env),
        runs[0].state if len(runs) == 1 else state,
        links if len(by_env) > 1 else "",
    )


def warnings(runs: Sequence[Run]) -> Html:
    found = [(run, text) for run in runs for text in run.warnings]
    items = [markup("<li>{}{}</li>", run.name + ": " if len(runs) > 1 else "", text) for run, text in found]
    box = '<div class="warnings" role="alert"><strong>Missing or incomplete data</strong><ul>{}</ul></div>'
    return markup(box, items) if items else Html()


def overview(by_env: dict[str, list[Group]]) -> Html:
    """The results of all environments in one table; empty for a single one, whose summary has them."""
    if len(by_env) < 2:
        return Html()
    columns = {"frames": "frames", "return": "return, last 100", "best": "best return", "success": "success, last 100"}
    known = {name for groups in by_env.values() for group in groups for name, _ in facts(group)}
    columns = {title: name for title, name in columns.items() if name in known}
    rows = []
    for i, (env_id, groups) in enumerate(by_env.items(), 1):
        rows.append(markup('<tr><th colspan="{}"><a href="#env-{}">{}</a></th></tr>', 2 + len(columns), i, env_id))
        for group in groups:
            found = dict(facts(group))
            values = [found.get(name, "") for name in columns.values()]
            cells = [markup("<td>{}</td>", value) for value in (runs_of(group), *values)]
            rows.append(markup("<tr><td>{}{}</td>{}</tr>", key(group), group.label, cells))
    heads = [markup("<th>{}</th>", name) for name in ("", "runs", *columns)]
    table = '<div class="card scroll"><table class="overview"><tr>{}</tr>{}</table></div>'
    note = "last 100 episodes" + (f", {NOTE}" if several_runs(by_env.values()) else "")
    return section("overview", "Overview", markup(table, heads, rows), note)


NOTE = "mean over finished runs ± standard error"


def several_runs(environments: Iterable[Sequence[Group]]) -> bool:
    """Whether any group has more than one run."""
    return any(len(group.runs) > 1 for groups in environments for group in groups)


def environment(groups: Sequence[Group], alone: bool) -> list[Html]:
    """All about the runs of one environment; what is not a result is folded where there are several environments."""
    note = f"{NOTE}, runs behind" if several_runs([groups]) else ""
    return [
        section("summary", "Summary", markup('<div class="cards">{}</div>', [card(group) for group in groups])),
        section("results", "Results", charts(RESULTS, groups), note),
        maps(groups),
        videos([run for group in groups for run in group.runs]),
        section("learning", "Learning", charts(LEARNING, groups), note, folded=not alone),
        section(
            "config", "Config", config_table(groups), "* differs from the preset", folded=not alone or len(groups) == 1
        ),
        section("reproduce", "How to reproduce it", reproduce(groups), folded=not alone),
    ]


def section(name: str, title: str, body: Html, note: str = "", *, folded: bool | None = None) -> Html:
    """A heading and its body; empty without a body. `folded`: whether a section that can be folded is so at first."""
    if not body:
        return Html()
    heading = markup("<h3>{}{}</h3>", title, markup(" <small>{}</small>", note) if note else "")
    if folded is None:
        return markup('<section class="{}">{}{}</section>', name, heading, body)
    line = '<section class="{}"><details{}><summary>{}</summary>{}</details></section>'
    return markup(line, name, "" if folded else Html(" open"), heading, body)


def card(group: Group) -> Html:
    tile = '<div><dt>{}</dt><dd class="{}">{}</dd></div>'
    tiles = [markup(tile, name, "long" if len(value) > 14 else "", value) for name, value in facts(group)]
    left_out = len(group.left_out)
    words = f"{left_out} unfinished: dashed in the charts, and not in the means" if left_out else ""
    advice = [f"{run.name}: {text}" for run in group.runs for text in RunHealth(run.metrics, run.config).warnings()]
    notes = [markup('<p class="note">{}</p>', text) for text in ([words] if words else []) + advice]
    return markup(
        '<article class="card"><h4>{}{}</h4><dl class="tiles">{}</dl>{}</article>', *heading(group), tiles, notes
    )


def heading(group: Group) -> tuple[Html, str]:
    return key(group), group.label


def runs_of(group: Group) -> str:
    done, all_runs = sum(run.finished for run in group.runs), len(group.runs)
    if done == all_runs:
        return f"{all_runs}"
    return f"{done} of {all_runs} finished" if all_runs > 1 else "unfinished"


def facts(group: Group) -> list[tuple[str, str]]:
    """(name, value) pairs of the summary at the end of training: means over seeds, or the best value of any seed."""

    def values(name: str) -> np.ndarray:
        found = np.array([run.last(name) for run in group.averaged])
        return np.asarray(found[np.isfinite(found)])

    found = [("runs", runs_of(group))] if len(group.runs) > 1 else []
    if len(values("frames")):
        first = group.averaged[0]
        total = f" of {count(first.config.frames)}" if first.config and not first.finished else ""
        found.append(("frames", count(float(values("frames").max())) + total))
    for name, title in (
        ("return_mean", "return, last 100"),
        ("success", "success, last 100"),
        ("places_mean", "places per episode"),
    ):
        if len(values(name)):
            found.append((title, mean_text(values(name), percent=name == "success")))
    for name in ("return_best", "rooms", "places", "episodes"):
        same = name == "places" and no_places([group])
        counted = name == "return_best" or values(name).any()  # a best return of 0 is a result, 0 rooms are none
        if len(values(name)) and counted and not same:
            one = len(values(name)) == 1
            title = "best return" if name == "return_best" else name if one else f"{name}, most of a run"
            found.append((title, number(float(values(name).max()))))
    speeds = [run.timing["frames_per_second"] for run in group.runs if len(run.timing.get("frames_per_second", ()))]
    if speeds:
        found.append(("frames/s", count(float(np.median(np.concatenate(speeds))))))
        seconds = [float(np.nansum(run.timing["seconds"])) for run in group.runs if "seconds" in run.timing]
        found += [("training time", duration(max(seconds)))] if seconds else []
    return [*found, *(Trend(group.runs[0].metrics).texts() if len(group.runs) == 1 else [])]


def mean_text(values: np.ndarray, *, percent: bool) -> str:
    """The mean, and the standard error where there are several values."""
    mean, error = map(float, statistics.mean_and_error(values))
    form = "{:.0%}" if percent else "{:,.2f}" if abs(mean) >= 1 else "{:.3g}"
    return form.format(mean) + (f" ± {form.format(error)}" if len(values) > 1 else "")


def key(group: Group) -> Html:
    return markup('<span class="key {}{}"></span>', colour_class(group.colour), " open" if group.marked else "")


def legend(groups: Sequence[Group]) -> Html:
    if len(groups) < 2:
        return Html()
    words = [", unfinished" if group.marked else "" for group in groups]
    items = [markup("<li>{}{}{}</li>", *heading(group), word) for group, word in zip(groups, words, strict=True)]
    return markup('<ul class="legendbar">{}</ul>', items)


def series_of(groups: Sequence[Group], column: str) -> list[Series]:
    """One line per group: the mean over its runs with the standard error, and every run behind it. Unfinished runs are
    in no mean, unless a group has no others."""
    found = []
    for group in groups:
        mean = [data for run in group.averaged if (data := column_of(run, column))]
        seeds = [(data, False) for data in mean] if len(mean) > 1 or group.left_out else []
        seeds += [(data, True) for run in group.left_out if (data := column_of(run, column))]
        behind = [(thin(mean_and_error(*align([data])), POINTS), unfinished) for data, unfinished in seeds]
        curve = thin(mean_and_error(*align(mean)), POINTS)
        thin_lines = tuple(Seed(one.x, one.mean, unfinished) for one, unfinished in behind)
        found.append(Series(group.label, group.colour, curve, thin_lines, group.marked))
    return found


def column_of(run: Run, column: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Frames and values of a column, where it has any."""
    y, x = (run.timing | run.metrics).get(column, np.empty(0)), run.metrics.get("frames", np.empty(0))
    rows = min(len(x), len(y))
    return (x[:rows], y[:rows]) if rows and bool(np.isfinite(y[:rows]).any()) else None


def no_places(groups: Sequence[Group]) -> bool:
    """Whether the number of places is left out. They are rooms in games with one level, and in others until the second
    is reached. Cells of a grid are not counted over all episodes: layouts may change with every one."""
    runs = [run.metrics for group in groups for run in group.runs]
    return all(np.array_equal(m.get("places", ()), m.get("rooms", ())) or not np.any(m.get("rooms", ())) for m in runs)


def charts(columns: Sequence[tuple[str, str, str]], groups: Sequence[Group]) -> Html:
    drawn = []
    for column, name, text in columns:
        series = series_of(groups, column)
        empty = column in ("rooms", "places", "places_mean") and not any(s.curve.mean.any() for s in series)
        if not empty and not (column == "places" and no_places(groups)):
            drawn.append(line_chart(name, series, text))
    body = [chart for chart in drawn if chart]
    return markup('{}<div class="charts">{}</div>', legend(groups), body) if body else Html()


def maps(groups: Sequence[Group]) -> Html:
    cards = [
        markup('<article class="card"><h4>{}{}</h4>{}<p class="said"></p></article>', *heading(group), body)
        for group in groups
        if (body := map_of(group))
    ]
    switch = Html(
        '<div class="switch" role="group" aria-label="colour">'
        '<button value="when" aria-pressed="true">when first entered</button>'
        '<button value="often" aria-pressed="false">how often</button></div>'
    )
    body = markup('{}<div class="maps">{}</div>', switch, cards) if cards else Html()
    return section("map", "Where it has been", body)


def videos(runs: Sequence[Run]) -> Html:
    shown = []
    for run in runs:
        path = run.video
        if path is None:
            continue
        strip = path.with_suffix(".png")
        try:
            line = '<video controls muted playsinline preload="auto" src="{}"></video>'
            body = markup(line, data_url(read_file(path, MAX_VIDEO), "video/mp4"))
            if strip.exists():
                line = '{}<img class="strip" alt="the bonus and the frames at its spikes" src="{}">'
                body = markup(line, body, data_url(read_file(strip, MAX_VIDEO), "image/png"))
        except OSError as error:
            body = markup("<p>{} is not shown: {}</p>", str(error.filename), str(error.strerror))
        name = markup("<h4>{}</h4>", run.name) if len(runs) > 1 else ""
        shown.append(markup('<article class="card">{}{}</article>', name, body))
    body = markup('<div class="shows">{}</div>', shown) if shown else Html()
    return section("video", "An episode and its bonus", body)


def reproduce(groups: Sequence[Group]) -> Html:
    sections = []
    for group in groups:
        known = [run for run in group.runs if run.config]
        if not known:
            continue
        lines = "\n".join(command_of(run.config) for run in known if run.config)
        name = markup("<h4>{}{}</h4>", *heading(group)) if len(groups) > 1 else ""
        sections.append(markup("{}<pre>{}</pre>{}", name, lines, origin(known[0])))
    note = Html("<p><small>The same version, seed and kind of device give the same numbers.</small></p>")
    return markup("{}{}", sections, note) if sections else Html()
