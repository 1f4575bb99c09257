"""The ledger of all runs, results/ledger.csv, and what is made from it.

    python benchmarks/ledger.py row RUN... [--append]   the rows of run folders; --append writes them into the ledger,
                                                        and the curves of those without a folder in results/
    python benchmarks/ledger.py table                   the table in results/README.md, between its markers
    python benchmarks/ledger.py image                   results/curves.png: our curves beside public ones

A mean is that of the last 100 episodes of training. Curves are read from results/RUN/metrics.csv or, of runs that have
no folder there, from results/curves/RUN.csv; of a run whose curve is not kept, the means of the ledger are drawn.
Public curves: benchmarks/anchors.csv, means over the runs of https://github.com/michalnand/reinforcement_learning (RND,
CNN, 128 environments, sticky actions).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rnd.config import Config
from rnd.config.presets import ATARI_GAMES, changes
from rnd.config.recipes import RECIPES
from rnd.foundation.errors import UserError
from rnd.foundation.files import read_json, write_atomically
from rnd.foundation.tables import csv_text
from rnd.metrics.metrics import read_csv
from rnd.paper.experiments import EFFICIENCY_ARMS, SIX_GAMES, TABLE1
from rnd.report.figure import Line, Panel, Plot, ReferenceLine, draw
from rnd.report.runs import Run, read_run

MILLIONS = (50, 100, 200, 300, 500)
MEANS = tuple(f"mean_{million}" for million in MILLIONS)
COLUMNS = (
    *("run", "game", "policy", "recipe", "command", "commit", "seed", "frames"),
    *MEANS,
    *("best", "rooms", "minutes", "mean_last", "notes"),
)
"""best: highest return of an episode. mean_last: the mean where the run ends. What is not known is empty."""
PUBLIC = {name: value for name, value in EFFICIENCY_ARMS["public"].items() if name != "bonus"}
SND = RECIPES["snd"]
LONG = (("snd", SND), ("snd", {k: v for k, v in SND.items() if k != "bonus_scale"}), ("public", PUBLIC))
"""Settings that are many, and further settings often change: they have a name in the table. Runs of `snd` have several
scales."""
GAMES = {**SIX_GAMES, "freeway": "Freeway"}
PAPERS = {"paper", "overlap", "bonus"}
"""Settings of the paper's that are drawn together."""
START, END = "<!-- ledger: begin -->", "<!-- ledger: end -->"
POINTS = 300
"""Rows that are drawn, or kept, of a curve."""
KEPT = (
    "frames",
    "return_mean",
    "return_best",
    "rooms",
    "length_mean",
    "bonus_raw",
    "bonus_share",
    "entropy",
    "approx_kl",
)
"""Columns of a curve in results/curves."""
SHORT = 210e6
"""Frames of the panels that compare the beginnings."""
PUBLIC = "public, CNN, mean of {} runs"
ANCHORS = Path(__file__).with_name("anchors.csv")

Row = dict[str, str]


# --- rows ------------------------------------------------------------------------------------------


def row_of(folder: Path, notes: str = "") -> Row:
    """The row of a run folder, or of an agent's folder in results/."""
    run = read_run(folder)
    if run.config is None or not run.iterations:
        raise UserError(f"{folder} has no config.json or no metrics.csv: it is no run folder")
    games = {env_id: game for game, env_id in ATARI_GAMES.items()}
    config, described = run.config, run.described
    command = command_of([str(word) for word in described.get("command", [])[1:]])
    rooms, seconds = run.last("rooms"), run.timing.get("seconds", np.empty(0))
    values: dict[str, Any] = {
        "run": run.name,
        "game": games.get(config.env.id, config.env.id),
        "policy": config.policy,
        "recipe": recipe(config),
        "command": f"rnd {command}" if command else "",
        "commit": str((described.get("git") or {}).get("commit", ""))[:7],
        "seed": config.seed,
        "frames": int(run.last("frames")),
        **{name: number(mean_at(run, 1e6 * million)) for name, million in zip(MEANS, MILLIONS, strict=True)},
        "best": number(run.last("return_best")),
        "rooms": int(rooms) if rooms > 0 else "",
        "minutes": f"{seconds.sum() / 60:.2f}" if len(seconds) else "",
        "mean_last": number(run.last("return_mean")),
        "notes": notes,
    }
    return {name: str(values[name]) for name in COLUMNS}


def command_of(words: list[str]) -> str:
    """The command without the output folder, which is a place on one machine."""
    at = words.index("--out") if "--out" in words else len(words)
    return " ".join(words[:at] + words[at + 2 :])


def keep_curve(folder: Path, path: Path) -> None:
    """Some rows and columns of a run's metrics, evenly spaced from the first to the last."""
    run = read_run(folder)
    columns = [name for name in KEPT if name in run.metrics]
    rows = zip(*(run.metrics[name][spaced(run.iterations)] for name in columns), strict=True)
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, csv_text(columns, [[f"{value:.9g}" for value in row] for row in rows]))


def spaced(count: int) -> np.ndarray:
    """The rows of so many that are drawn or kept."""
    return np.unique(np.linspace(0, count - 1, min(POINTS, count)).round().astype(int))


def recipe(config: Config) -> str:
    """What differs from the paper's run beside game, policy and length: the name of a recipe, or settings, after the
    name of the one that they change further."""
    differs = {k: v for k, v in changes(config, "experiment").items() if k not in ("env.id", "policy", "frames")}
    if exact := [name for name, fields in RECIPES.items() if fields == differs]:
        return exact[0]
    name, named = next(((name, fields) for name, fields in LONG if fields.items() <= differs.items()), ("", {}))
    rest = {k: v for k, v in differs.items() if k not in named}
    values = {k: f"={v:.12g}" if isinstance(v, float) else f"={v}" if v is not True else "" for k, v in rest.items()}
    return ", ".join([*([name] if name else []), *(k + v for k, v in values.items())])


def mean_at(run: Run, frames: float) -> float:
    """The mean at so many frames; NaN where the run ended before."""
    at = int(np.searchsorted(run.metrics["frames"], frames))
    return float(run.metrics["return_mean"][at]) if at < run.iterations else math.nan


def number(value: float) -> str:
    return "" if not math.isfinite(value) else f"{round(value, 1):g}" if abs(value) < 1e5 else f"{value:.0f}"


def read_ledger(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows; one of the same run is replaced, and keeps its notes."""
    found = {row["run"]: row for row in (read_ledger(path) if path.exists() else [])}
    for row in rows:
        notes = row["notes"] or found.get(row["run"], {}).get("notes", "")
        found[row["run"]] = row | {"notes": notes}
    write_atomically(path, csv_text(COLUMNS, [[row[name] for name in COLUMNS] for row in found.values()]))


# --- the table -------------------------------------------------------------------------------------


def table(rows: list[Row], results: Path) -> str:
    """The ledger as a table for people, and its notes below it."""
    titles = ["run", "recipe", "seed", "frames", *(f"{million} M" for million in MILLIONS)]
    titles += ["last (a)", "best (a)", "rooms", "score (b)", "95%", "minutes", "frames/s", "paper, GRU (c)"]
    lines = [titles, ["---", "---", *["---:"] * (len(titles) - 2)]]
    for row in sorted(rows, key=order):
        frames, minutes = int(row["frames"] or 0), float(row["minutes"] or 0)
        lines.append(
            [
                f"[{row['run']}]({row['run']}/README.md)" if (results / row["run"]).is_dir() else row["run"],
                row["recipe"] + (", GRU" if row["policy"] == "gru" else ""),
                row["seed"],
                f"{frames / 1e6:,.0f} M" if frames else "",
                *(text(row[name]) for name in (*MEANS, "mean_last", "best", "rooms")),
                *score(results / row["run"] / "evaluation.json"),
                text(row["minutes"]),
                f"{frames / minutes / 60:,.0f}" if minutes else "",
                text(TABLE1.get(method(row), {}).get(row["game"], "")),
            ]
        )
    notes = [f"- {row['run']}: {row['notes']}" for row in sorted(rows, key=order) if row["notes"]]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *notes])


def order(row: Row) -> tuple[int, float]:
    return [*GAMES].index(row["game"]) if row["game"] in GAMES else len(GAMES), -float(row["mean_last"] or 0)


def method(row: Row) -> str:
    """The row of the paper's table 1 to compare with; "" for bonuses that it does not have."""
    if "bonus=none" in row["recipe"]:
        return "PPO"
    return "" if "bonus=" in row["recipe"] or row["recipe"].split(", ")[0] == "snd" else "RND"


def text(value: Any) -> str:
    if value == "":
        return ""
    rounded = float(value)
    return f"{rounded:,.1f}" if rounded % 1 and abs(rounded) < 100 else f"{rounded:,.0f}"


def score(path: Path) -> list[str]:
    """Mean and interval of `rnd evaluate`."""
    if not path.exists():
        return ["", ""]
    data = read_json(path)
    low, high = data["mean_return_interval_95"]
    return [text(round(data["mean_return"], 1)), f"{text(round(low, 1))} to {text(round(high, 1))}"]


def write_table(page: Path, content: str) -> None:
    before, _, rest = page.read_text().partition(START)
    _, found, after = rest.partition(END)
    if not found:
        raise UserError(f"{page} has no lines {START} and {END}, between which the table stands")
    write_atomically(page, f"{before}{START}\n{content.rstrip()}\n{END}{after}")


# --- the image -------------------------------------------------------------------------------------


def curve_file(row: Row, results: Path) -> Path | None:
    """Where the curve of a run is kept, if it is."""
    files = results / row["run"] / "metrics.csv", results / "curves" / f"{row['run']}.csv"
    return next((path for path in files if path.is_file()), None)


def curve(row: Row, results: Path, last: float) -> Run | None:
    """The curve of a run until a frame, with few points; from the ledger alone where it is not kept."""
    if path := curve_file(row, results):
        metrics = {name: np.asarray(values) for name, values in read_csv(path).items()}
        chosen = spaced(int(np.searchsorted(metrics["frames"], last, side="right")))
        return drawn({name: metrics[name][chosen] for name in ("frames", "return_mean")})
    known = {1e6 * million: row[name] for million, name in zip(MILLIONS, MEANS, strict=True) if row[name]}
    known |= {float(row["frames"]): row["mean_last"]} if row["mean_last"] else {}
    points = sorted((frames, float(mean)) for frames, mean in known.items() if frames <= last)
    return drawn({"frames": [x for x, _ in points], "return_mean": [y for _, y in points]}) if points else None


def drawn(columns: dict[str, Any]) -> Run:
    """A run of these columns that is not marked as unfinished: a part of it is shown."""
    metrics = {name: np.asarray(values, float) for name, values in columns.items()}
    return Run(Path(), Config(frames=1), metrics=metrics | {"iteration": np.arange(1.0, len(metrics["frames"]) + 1)})


def public(game: str, last: float) -> Line | None:
    rows = [row for row in read_ledger(ANCHORS) if row["game"] == game and float(row["frames"]) <= last]
    if not rows:
        return None
    columns = {"frames": [row["frames"] for row in rows], "return_mean": [row["mean"] for row in rows]}
    return Line(PUBLIC.format(rows[0]["runs"]), (drawn(columns),), 1)


def panel(game: str, title: str, rows: list[Row], results: Path, last: float) -> Panel:
    """The runs of a game, the public mean, and the paper's values."""
    lines, references = [public(game, last)], dict[str, ReferenceLine]()
    for row in rows:
        run, name = curve(row, results, last), method(row)
        lines.append(Line(row["run"].removeprefix(f"{game}-"), (run,), 1) if run else None)
        if game in TABLE1.get(name, {}):
            value = TABLE1[name][game]
            references.setdefault(name, ReferenceLine(value, f"paper, GRU: {name} {value:,.0f}"))
    shown = tuple(line for line in lines if line)
    return Panel(title, "return_mean", "mean return, last 100 episodes", shown, tuple(references.values()))


def panels(rows: list[Row], results: Path) -> list[Panel]:
    """Montezuma's Revenge: the paper's settings, the recipe `snd`, other settings, and the long runs. One panel for
    each other game. Runs whose curve is not kept are among the other settings alone: a few points would mislead beside
    curves."""
    game = "montezuma"
    own = [row for row in rows if row["game"] == game]
    snd = [row for row in own if row["recipe"].split(", ")[0] == "snd"]
    papers = [row for row in own if {word.split("=")[0] for word in row["recipe"].split(", ")} <= PAPERS]
    other = [row for row in own if row not in papers and row not in snd]
    kept = [row for row in own if curve_file(row, results)]
    long = [row for row in kept if int(row["frames"] or 0) > SHORT]
    made = [
        panel(game, f"{GAMES[game]}, the paper's settings", [row for row in papers if row in kept], results, SHORT),
        panel(game, f"{GAMES[game]}, the recipe snd", snd, results, SHORT),
        panel(game, f"{GAMES[game]}, other settings", other, results, SHORT),
        panel(game, f"{GAMES[game]}, long runs", long, results, math.inf),
    ]
    for name, title in GAMES.items():
        if name != game and (found := [row for row in rows if row["game"] == name]):
            made.append(panel(name, title, found, results, math.inf))
    return made


def write_image(rows: list[Row], results: Path, out: Path) -> None:
    plot = Plot("curves", "Runs of the ledger, one line per seed", tuple(panels(rows, results)), columns=3)
    with tempfile.TemporaryDirectory() as folder:
        png, _, _ = draw(plot, Path(folder))
        shutil.copyfile(png, out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("row", "table", "image"))
    parser.add_argument("runs", nargs="*", type=Path, help="run folders, for row")
    parser.add_argument("--append", action="store_true", help="write the rows into the ledger")
    parser.add_argument("--name", help="of the run in the ledger; default: the name of its folder")
    parser.add_argument("--notes", default="", help="of the run in the ledger")
    parser.add_argument("--results", type=Path, default=Path("results"))
    options = parser.parse_args()
    ledger = options.results / "ledger.csv"
    try:
        if options.what == "row":
            rows = [
                row_of(path, options.notes) | ({"run": options.name} if options.name else {}) for path in options.runs
            ]
            print(csv_text(COLUMNS, [[row[name] for name in COLUMNS] for row in rows]), end="")
            if options.append:
                append(ledger, rows)
                for path, row in zip(options.runs, rows, strict=True):
                    if not (options.results / row["run"]).is_dir():
                        keep_curve(path, options.results / "curves" / f"{row['run']}.csv")
        elif options.what == "table":
            write_table(options.results / "README.md", table(read_ledger(ledger), options.results))
        else:
            write_image(read_ledger(ledger), options.results, options.results / "curves.png")
    except (UserError, OSError, json.JSONDecodeError) as error:
        print(f"ledger: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
