"""The config and origin of a run, and the command that repeats it."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence
from typing import Any

from rnd.config import Config
from rnd.presets import ATARI_GAMES, preset
from rnd.report.runs import Group, Run, differences, flatten

PLACE = ("out", "name", "wandb")
"""Fields that say where results go, not what they are."""


def command_of(config: Config) -> str:
    """The shortest `rnd train` command with this config."""
    env_id = config.env.id
    game = next((name for name, full in ATARI_GAMES.items() if full == env_id), env_id)
    start, mine = flatten(preset(game)), flatten(config)
    words = ["rnd", "train", game]
    for name, value in mine.items():
        if name not in (*PLACE, "env.id") and value != start[name]:
            words += flag(name, value)
    return shlex.join(words)


def flag(name: str, value: Any) -> list[str]:
    """One field as command-line arguments."""
    words = name.replace("_", "-")
    if isinstance(value, bool):
        group, _, last = words.rpartition(".")
        return [f"--{group + '.' if group else ''}{'' if value else 'no-'}{last}"]
    return [f"--{words}", str(value)]


def config_table(groups: Sequence[Group]) -> str:
    """An HTML table of all fields. Fields that differ between groups are highlighted; those that differ from the preset
    have a star."""
    configs = [next((run.config for run in group.runs if run.config), None) for group in groups]
    known = [(group, config) for group, config in zip(groups, configs, strict=True) if config]
    if not known:
        return ""
    differing = set(differences([config for _, config in known]))
    flat = [flatten(config) for _, config in known]
    starts = [flatten(preset(config.env.id)) for _, config in known]
    rows = []
    for name in flat[0]:
        if name in PLACE:
            continue
        values = [f[name] for f in flat]
        changed = any(f[name] != s[name] for f, s in zip(flat, starts, strict=True)) and name not in ("env.id", "seed")
        classes = " ".join(["differs"] * (name in differing) + ["changed"] * changed)
        cells = "".join(f"<td>{html.escape(str(value))}</td>" for value in values)
        rows.append(f'<tr class="{classes}"><td>{name}</td>{cells}</tr>')
    heads = "".join(f"<th>{html.escape(group.label)}</th>" for group, _ in known)
    opened = "" if len(known) == 1 else " open"
    return (
        '<section id="config"><h2>Config <small>* differs from the preset of the game</small></h2>'
        f"<details{opened}><summary>{len(rows)} fields</summary>"
        f'<div class="card scroll"><table><tr><th>field</th>{heads}</tr>{"".join(rows)}</table></div>'
        "</details></section>"
    )


def origin(run: Run) -> str:
    """Versions, commit and date as an HTML table, as far as run.json has them."""
    about = run.about
    git = about.get("git") or {}
    commit = f"{git.get('commit')}{'' if git.get('clean') else ', with local changes'}" if git.get("commit") else None
    packages = about.get("packages") or {}
    facts = {
        "rnd": about.get("rnd"),
        "commit": commit,
        "started": about.get("started"),
        "resumed": len(about["resumed"]) if about.get("resumed") else None,
        "python": about.get("python"),
        "platform": about.get("platform"),
        **{name: packages[name] for name in packages if packages[name]},
    }
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None
    )
    return f'<div class="card scroll"><table>{rows}</table></div>' if rows else ""
