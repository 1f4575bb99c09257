"""The config and origin of a run, and the command that repeats it."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence
from typing import Any

from rnd.config import Config
from rnd.presets import ATARI_GAMES, changes
from rnd.report.runs import Group, Run, differences


def command_of(config: Config) -> str:
    """The shortest `rnd train` command with this config. What is written and where is left out."""
    env_id = config.env.id
    game = next((name for name, full in ATARI_GAMES.items() if full == env_id), env_id)
    words = ["rnd", "train", game]
    for name, value in changes(config, "experiment", "seed", "place").items():
        words += flag(name, value) if name != "env.id" else []
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
    flat = [config.flat() for _, config in known]
    changed_here = {name for _, config in known for name in changes(config, "experiment", "place")} - {"env.id"}
    hidden = {name for _, config in known for name in config.named("recording") if "." not in name}
    rows = []
    for name in dict.fromkeys(name for values in flat for name in values if name not in hidden):
        values = [f.get(name, "") for f in flat]
        changed = name in changed_here
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
