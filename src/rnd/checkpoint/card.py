"""The folder of an agent in the zoo, from a run folder: small enough for a repository."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from rnd.checkpoint.export import export_agent
from rnd.checkpoint.zoo import AGENT, DESCRIPTION, EVALUATION, NO_BONUS, TRACE, number, read_score, text
from rnd.config import Config
from rnd.foundation.errors import UserError
from rnd.foundation.files import open_regular, read_errors, read_json, replacing, write_atomically
from rnd.foundation.tables import csv_text
from rnd.metrics.metrics import csv_rows, read_csv

MAX_ROWS = 1000
"""Rows of a table: more than a curve on a page has pixels."""
COPIED = (
    ("config.json",),
    ("run.json",),
    ("rooms.json",),
    (EVALUATION,),
    (TRACE,),
    ("watch", "episode.mp4"),
    ("watch", "episode.png"),
)


def write_card(run: Path, out: Path, bonus: bool = False, best: bool = False) -> Path:
    """Write the folder of a run's agent, from what is in the run folder: checkpoint (or exported agent), tables, the
    evaluation, trace and video, where they were made. With `bonus` its networks are kept beside the policy; `best`: of
    the best checkpoint."""
    out.mkdir(parents=True, exist_ok=True)
    exported = inside(run, "export", f"{run.resolve().name}.safetensors")
    export_agent(exported if exported and not best else run, out / AGENT, half=True, bonus=bonus, best=best)
    check_same_agent(run, read_json(out / DESCRIPTION), best)
    for names in COPIED:
        if source := inside(run, *names):
            copy(source, out / source.name)
    write_tables(run, out)
    write_atomically(out / "README.md", card(out))
    return out


def check_same_agent(run: Path, card: dict[str, Any], best: bool) -> None:
    """Refuse an evaluation or a trace of another checkpoint."""
    for name, flag in ((EVALUATION, ""), (TRACE, " --trace")):
        path = inside(run, name)
        if path is None:
            continue
        with read_errors(path, "what rnd evaluate writes"):
            data = read_json(path)
            frames = data["agent"]["frames"] if name == TRACE else data["frames"]
        if frames != card["frames"]:
            command = f"rnd evaluate {run}{' --best' * best}{flag}"
            raise UserError(
                f"{path} is of the checkpoint at {frames!r:.20} frames, and the agent of the one at "
                f"{card['frames']}; make it again: {command}"
            )


def inside(run: Path, *names: str) -> Path | None:
    """A file of a run folder; None where there is none, or where a link on the way to it leads elsewhere."""
    path = run.joinpath(*names)
    ways = [run.joinpath(*names[: count + 1]) for count in range(len(names))]
    return path if path.is_file() and not any(way.is_symlink() for way in ways) else None


def copy(source: Path, target: Path) -> None:
    with open_regular(source, "rb") as file, replacing(target) as new:
        shutil.copyfileobj(file, new)


# --- tables ----------------------------------------------------------------------------------------------


def write_tables(run: Path, out: Path) -> None:
    """metrics.csv with at most MAX_ROWS of its rows, evenly spaced from the first to the last, and timing.csv with a
    row for each of them: the time since the row before."""
    metrics, timing = inside(run, "metrics.csv"), inside(run, "timing.csv")
    if metrics is None:
        return
    with read_errors(metrics, "a table of metrics"):
        iterations = np.asarray(read_csv(metrics)["iteration"])
        kept = np.unique(np.linspace(0, len(iterations) - 1, min(len(iterations), MAX_ROWS)).round().astype(int))
        header, *rows = csv_rows(metrics)
        write_atomically(out / metrics.name, csv_text(header, [rows[index] for index in kept]))
    if timing is None or not len(kept):
        return
    with read_errors(timing, "a table of times"):
        columns = {name: np.asarray(values) for name, values in read_csv(timing).items()}
        if len(columns["iteration"]) == len(kept):
            copy(timing, out / timing.name)
        else:
            times = summed(columns, iterations[kept])
            write_atomically(out / timing.name, csv_text([*times], zip(*times.values(), strict=True)))


def summed(columns: dict[str, np.ndarray], ends: np.ndarray) -> dict[str, list[Any]]:
    """Times of single iterations as those of the spans that end with `ends`; later ones belong to the last span."""
    span = np.minimum(np.searchsorted(ends, columns["iteration"]), len(ends) - 1)
    frames = columns["seconds"] * columns["frames_per_second"]

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(span, values, len(ends))

    timed = np.bincount(span, minlength=len(ends)) > 0
    found = {name: total(values) for name, values in columns.items()}
    found["frames_per_second"] = total(frames) / np.maximum(found["seconds"], 1e-9)
    return {"iteration": [int(end) for end in ends[timed]]} | {
        name: [float(f"{value:.6g}") for value in values[timed]]
        for name, values in found.items()
        if name != "iteration"
    }


def wall_time(out: Path) -> float:
    """Seconds of all iterations; 0 where they are not known."""
    path = out / "timing.csv"
    with read_errors(path, "a table of times"):
        return number(float(np.nansum(read_csv(path).get("seconds", ()))))


# --- the page -----------------------------------------------------------------------------------------------


def card(out: Path) -> str:
    """The README of a folder."""
    name, score = out.resolve().name, read_score(out)
    with read_errors(out / DESCRIPTION, "the description of an agent"):
        agent = read_json(out / DESCRIPTION)
        env_id = Config.from_dict(agent["config"]).env.id
        facts = facts_of(agent) | facts_of_run(out, int(agent["frames"]))
    lines = [
        "---",
        "library_name: rnd",
        "license: mit",
        "tags:",
        *(f"- {tag}" for tag in ("reinforcement-learning", "random-network-distillation", env_id)),
    ]
    if score:
        value = f"{score.mean:.2f} +/- {score.std:.2f}"
        lines += [
            "model-index:",
            f"- name: {name}",
            "  results:",
            "  - task: {type: reinforcement-learning, name: reinforcement-learning}",
            f"    dataset: {{name: {env_id}, type: {env_id}}}",
            "    metrics:",
            f"    - {{type: mean_reward, name: mean_reward, value: {value}, verified: false}}",
        ]
    lines += ["---", "", f"# {name}", "", "| | |", "| --- | --- |"]
    lines += [*(f"| {key} | {value} |" for key, value in facts.items()), ""]
    lines += [f"`rnd watch zoo:{name}` plays it. `rnd evaluate zoo:{name}` scores it. `rnd report` with this folder"]
    lines += ["draws its curves." + (" The agent's file has no bonus." if agent.get(NO_BONUS) else "")]
    if (out / "episode.png").exists():
        lines += ["", "![an episode and its bonus](episode.png)"]
    return "\n".join(lines) + "\n"


def facts_of(agent: dict[str, Any]) -> dict[str, Any]:
    """What the card says of an agent's description."""
    config, row = Config.from_dict(agent["config"]), agent["row"]

    def returned(key: str) -> str:
        return "no episode ended" if row.get(key) is None else f"{row[key]:,.1f}"

    facts = {
        "environment": config.env.id,
        "bonus, policy": f"{config.bonus}, {config.policy}",
        "frames": f"{agent['frames']:,}",
        "checkpoint": f"iteration {agent['iteration']:,} of {config.iterations:,}",
        "environments": f"{config.env.num_envs}" + (", `--overlap`" if config.overlap else ", synchronous"),
        "seed": config.seed,
        "mean return of the last 100 episodes of training": returned("return_mean"),
        "best return in training": returned("return_best"),
    }
    return facts | ({"rooms found in training": row["rooms"]} if row.get("rooms") else {})


def facts_of_run(out: Path, frames: int) -> dict[str, Any]:
    """What the card says of evaluation, time and command, where they are known."""
    facts, path = {}, out / "run.json"
    if score := read_score(out):
        interval = f"(95%: {score.low:,.1f} to {score.high:,.1f})"
        facts[f"mean return of {score.episodes} episodes afterwards"] = f"{score.mean:,.1f} {interval}"
        facts["their median, best"] = f"{score.median:,.1f}, {score.best:,.1f}"
    if seconds := wall_time(out):
        facts["wall time of the training"] = f"{seconds / 60:,.1f} min, {frames / seconds:,.0f} frames/s"
    if path.exists():
        with read_errors(path, "the description of a run"):
            run = read_json(path)
            commit = (run.get("git") or {}).get("commit", "unknown")
            facts["command"] = f"`rnd {' '.join(map(text, run['command'][1:]))}`"
            facts["date, commit"] = f"{text(run['started'])[:10]}, {text(commit)}"
    return facts
