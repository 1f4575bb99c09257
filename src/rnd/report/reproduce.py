"""The config and origin of a run, and the command that repeats it."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence

from rnd.config import Config
from rnd.presets import ATARI_GAMES, changes
from rnd.report.runs import Group, Run, differences


def command_of(config: Config) -> str:
    """The shortest `rnd train` command with this config. What is written and where is left out."""
    game = next((name for name, full in ATARI_GAMES.items() if full == config.env.id), config.env.id)
    words = ["rnd", "train", game]
    for name, value in changes(config, "experiment", "seed", "place").items():
        group, dot, last = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            words.append(f"--{group}{dot}{'' if value else 'no-'}{last}")
        elif name != "env.id":
            words += [f"--{group}{dot}{last}", str(value)]
    return shlex.join(words)


def config_table(groups: Sequence[Group]) -> str:
    """An HTML table of all fields. Fields that differ between groups are highlighted; those that differ from the preset
    have a star."""
    known = [group for group in groups if any(run.config for run in group.runs)]
    if not known:
        return ""
    configs = [next(run.config for run in group.runs if run.config) for group in known]
    flat = [config.flat() for config in configs]
    differing = differences(configs)
    changed = {name for config in configs for name in changes(config, "experiment", "place")} - {"env.id"}
    hidden = {name for config in configs for name in config.named("recording") if "." not in name}
    rows = []
    for name in dict.fromkeys(name for values in flat for name in values if name not in hidden):
        classes = " ".join(["differs"] * (name in differing) + ["changed"] * (name in changed))
        cells = "".join(f"<td>{html.escape(str(values.get(name, '')))}</td>" for values in flat)
        rows.append(f'<tr class="{classes}"><td>{name}</td>{cells}</tr>')
    heads = "".join(f"<th>{html.escape(group.label)}</th>" for group in known)
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
    git, packages = (found if isinstance(found := about.get(name), dict) else {} for name in ("git", "packages"))
    commit = f"{git.get('commit')}{'' if git.get('clean') else ', with local changes'}" if git.get("commit") else None
    facts = {
        "rnd": about.get("rnd"),
        "commit": commit,
        "started": about.get("started"),
        "resumed": len(resumed) if isinstance(resumed := about.get("resumed"), list) else None,
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
