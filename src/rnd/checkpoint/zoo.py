"""The zoo: trained agents, one folder each, in one layout. `zoo:NAME` names one on the command line.

NAME/README.md              the card, with the metadata that model hubs read
     agent.safetensors.xz   policy, predictor, target and normaliser in 16 bits; agent.json is its description
     evaluation.json        `rnd evaluate`
     episode.mp4, .png      `rnd watch`
     config.json, metrics.csv, timing.csv, run.json, rooms.json   what the run wrote
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnd.checkpoint.export import SavedAgent, export_agent, load_agent
from rnd.foundation.errors import UserError, nearest
from rnd.foundation.files import open_regular, read_errors, read_json, replacing, write_atomically
from rnd.metrics.metrics import read_csv

PREFIX = "zoo:"
AGENT = "agent.safetensors.xz"
EVALUATION = "evaluation.json"
OF_THE_RUN = ("config.json", "metrics.csv", "timing.csv", "run.json", "rooms.json", EVALUATION)
OF_THE_VIDEO = ("episode.mp4", "episode.png")


def folder() -> Path:
    """Where the agents are: $RND_ZOO, results/ in the working folder, or that of the checkout."""
    if named := os.environ.get("RND_ZOO"):
        return Path(named)
    here = Path("results")
    return here if here.is_dir() else Path(__file__).parents[3] / "results"


def names() -> list[str]:
    found = folder()
    return sorted(path.parent.name for path in found.glob(f"*/{AGENT}")) if found.is_dir() else []


def locate(target: str) -> Path:
    """The path of a run, a file, or an agent of the zoo."""
    if not target.startswith(PREFIX):
        return Path(target)
    name = target.removeprefix(PREFIX)
    if name not in names():
        known = nearest(name, names()) if names() else "it is empty; RND_ZOO names another folder"
        raise UserError(f"the zoo in {folder()} has no agent {name!r}; {known}")
    return folder() / name / AGENT


def entries() -> Iterator[tuple[str, SavedAgent, dict[str, Any]]]:
    """Name, agent and evaluation (empty without one) of all."""
    for name in names():
        path = folder() / name / EVALUATION
        with read_errors(path, "an evaluation"):
            evaluation = read_json(path) if path.exists() else {}
        yield name, load_agent(folder() / name / AGENT), evaluation


def write_card(run: Path, out: Path) -> Path:
    """Write the folder of a run's agent, from what is in the run folder: checkpoint (or exported agent), tables, the
    evaluation and the video, where they were made."""
    out.mkdir(parents=True, exist_ok=True)
    exported = run / "export" / f"{run.resolve().name}.safetensors"
    export_agent(exported if exported.is_file() else run, out / AGENT, half=True)
    video = [run / "watch" / name for name in OF_THE_VIDEO]
    for source in (*(run / name for name in OF_THE_RUN), *video):
        if source.exists():
            with open_regular(source, "rb") as file, replacing(out / source.name) as copy:
                shutil.copyfileobj(file, copy)
    write_atomically(out / "README.md", card(out))
    return out


def card(out: Path) -> str:
    """The README of a folder."""
    agent, name = load_agent(out / AGENT), out.resolve().name
    config, env_id, row = agent.config, agent.config.env.id, agent.card["row"]
    run = read_json(out / "run.json") if (out / "run.json").exists() else {}
    evaluation = read_json(out / EVALUATION) if (out / EVALUATION).exists() else {}
    mean, std = (evaluation.get(key, row.get("return_mean") or 0.0) for key in ("mean_return", "std_return"))
    facts = {
        "environment": env_id,
        "bonus, policy": f"{config.bonus}, {config.policy}",
        "frames": f"{agent.card['frames']:,}",
        "environments": f"{config.env.num_envs}" + (", `--overlap`" if config.overlap else ", synchronous"),
        "seed": config.seed,
        "mean return of the last 100 episodes of training": f"{row['return_mean']:,.1f}",
        "best return in training": f"{row['return_best']:,.1f}",
    }
    if row.get("rooms"):
        facts["rooms found in training"] = row["rooms"]
    if evaluation:
        low, high = evaluation["mean_return_interval_95"]
        played = f"{evaluation['episodes']} episodes afterwards"
        facts[f"mean return of {played}"] = f"{mean:,.1f} (95%: {low:,.1f} to {high:,.1f})"
        facts["their median, best"] = f"{evaluation['median_return']:,.1f}, {evaluation['best_return']:,.1f}"
    if seconds := wall_time(out):
        facts["wall time of the training"] = f"{seconds / 60:,.1f} min, {agent.card['frames'] / seconds:,.0f} frames/s"
    if run:
        facts["command"] = f"`rnd {' '.join(run['command'][1:])}`"
        facts["date, commit"] = f"{run['started'][:10]}, {(run.get('git') or {}).get('commit', 'unknown')}"
    lines = [
        "---",
        "library_name: rnd",
        "license: mit",
        "tags:",
        *(f"- {tag}" for tag in ("reinforcement-learning", "random-network-distillation", env_id)),
        "model-index:",
        f"- name: {name}",
        "  results:",
        "  - task: {type: reinforcement-learning, name: reinforcement-learning}",
        f"    dataset: {{name: {env_id}, type: {env_id}}}",
        "    metrics:",
        f"    - {{type: mean_reward, name: mean_reward, value: {mean:.2f} +/- {std:.2f}, verified: false}}",
        "---",
        "",
        f"# {name}",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {key} | {value} |" for key, value in facts.items()),
        "",
        f"`rnd watch zoo:{name}` plays it. `rnd evaluate zoo:{name}` scores it.",
    ]
    if (out / "episode.png").exists():
        lines += ["", "![an episode and its bonus](episode.png)"]
    return "\n".join(lines) + "\n"


def wall_time(out: Path) -> float:
    """Seconds of all iterations; 0 where they are not known."""
    timing = read_csv(out / "timing.csv") if (out / "timing.csv").exists() else {}
    return float(sum(timing["seconds"])) if "seconds" in timing else 0.0
