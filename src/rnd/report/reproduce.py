"""The config and origin of a run, and the command that repeats it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from rnd.config import Config
from rnd.config.presets import ATARI_GAMES, changes
from rnd.report.markup import Html, markup
from rnd.report.runs import Group, Run, differences


def command_of(config: Config) -> str:
    """The shortest `rnd train` command with this config. What is written and where is left out."""
    game = next((name for name, full in ATARI_GAMES.items() if full == config.env.id), config.env.id)
    words = ["rnd", "train", game]
    for name, value in changes(config, "experiment", "seed", "runtime").items():
        group, dot, last = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            words.append(f"--{group}{dot}{'' if value else 'no-'}{last}")
        elif name != "env.id":
            words += [f"--{group}{dot}{last}", str(value)]
    return shlex.join(words)


def config_table(groups: Sequence[Group]) -> Html:
    """An HTML table of all fields. Fields that differ between groups are highlighted; those that differ from the preset
    have a star."""
    known = [group for group in groups if any(run.config for run in group.runs)]
    if not known:
        return Html()
    configs = [next(run.config for run in group.runs if run.config) for group in known]
    flat = [config.flat() for config in configs]
    differing = differences(configs)
    changed = {name for config in configs for name in changes(config, "experiment", "runtime")} - {"env.id"}
    hidden = {name for config in configs for name in config.named("recording") if "." not in name}
    rows = []
    for name in dict.fromkeys(name for values in flat for name in values if name not in hidden):
        classes = " ".join(["differs"] * (name in differing) + ["changed"] * (name in changed))
        cells = [markup("<td>{}</td>", str(values.get(name, ""))) for values in flat]
        rows.append(markup('<tr class="{}"><td>{}</td>{}</tr>', classes, breakable(name), cells))
    heads = [markup("<th>{}</th>", group.label) for group in known]
    table = '<div class="card scroll"><table><tr><th>field</th>{}</tr>{}</table></div>'
    return markup(table, heads, rows)


def breakable(name: str) -> Html:
    """A dotted name that may be broken at its dots and underscores, on a narrow screen."""
    return Html("<wbr>".join(markup("{}", piece) for piece in re.split(r"(?<=[._])", name)))


def origin(run: Run) -> Html:
    """Versions, commit and date as an HTML table, as far as run.json has them."""
    described = run.described
    git, packages = (found if isinstance(found := described.get(name), dict) else {} for name in ("git", "packages"))
    commit = f"{git.get('commit')}{'' if git.get('clean') else ', with local changes'}" if git.get("commit") else None
    facts = {
        "rnd": described.get("rnd"),
        "commit": commit,
        "started": described.get("started"),
        "resumed": len(resumed) if isinstance(resumed := described.get("resumed"), list) else None,
        "python": described.get("python"),
        "platform": described.get("platform"),
        **{name: packages[name] for name in packages if packages[name]},
    }
    rows = [
        markup("<tr><td>{}</td><td>{}</td></tr>", name, str(value))
        for name, value in facts.items()
        if value is not None
    ]
    return markup('<div class="card scroll"><table>{}</table></div>', rows) if rows else Html()
