"""The zoo: trained agents, one folder each, in one layout. `zoo:NAME` names one on the command line.

NAME/README.md              the card, with the metadata that model hubs read
     agent.safetensors.xz   the policy in 16 bits (with `rnd export --bonus yes` the bonus too)
     agent.json             its description
     evaluation.json        `rnd evaluate`
     trace.json             `rnd evaluate --trace`; `rnd replay zoo:NAME` plays it
     episode.mp4, .png      `rnd watch`
     config.json, run.json, rooms.json   what the run wrote
     metrics.csv, timing.csv             the same, with fewer rows

zoo.json beside this module is the index of the published agents: what they are, and the size and SHA-256 of their
files. The files are in a source: a folder, or an http(s) address from which they are downloaded once. Nothing of an
agent is unpacked or imported here, so that a list is quick and shows what others made.
"""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import math
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rnd.foundation.errors import UserError, nearest
from rnd.foundation.files import cache_folder, digest, read_errors, read_json, write_atomically

PREFIX = "zoo:"
INDEX = Path(__file__).with_name("zoo.json")
AGENT = "agent.safetensors.xz"
DESCRIPTION = "agent.json"
EVALUATION = "evaluation.json"
TRACE = "trace.json"
NO_BONUS = "bonus_left_out"
"""Key in the description of an agent whose file has the policy alone."""
VARIABLE = "RND_ZOO"
TIMEOUT = 30.0
MAX_TEXT = 200

Source = Path | str | None
"""A folder, an http(s) address, or nothing."""


@dataclass(frozen=True)
class Entry:
    """An agent, as the index has it."""

    name: str
    game: str
    """The id of its environment."""
    policy: str
    bonus: str
    has_bonus: bool
    """Whether the file has the bonus beside the policy."""
    frames: int
    score: float | None
    """Mean return of `rnd evaluate`; None without one."""
    interval_95: tuple[float, float] | None
    rooms: int | None
    size: int
    sha256: str
    """Hash of the agent's file; empty where it was not computed."""


class Listed(NamedTuple):
    """A line of `rnd zoo`."""

    name: str
    entry: Entry | None
    place: str
    """Where the agent's file is; without an entry, why it cannot be read."""


class Score(NamedTuple):
    """What `rnd evaluate` wrote."""

    mean: float
    std: float
    low: float
    high: float
    median: float
    best: float
    episodes: int


# --- what there is ------------------------------------------------------------------------------------


def index() -> dict[str, Entry]:
    """Name to entry of the published agents."""
    with read_errors(INDEX, "an index of agents"):
        found = [Entry(**data) for data in read_json(INDEX)]
    return {entry.name: entry for entry in found}


def index_of(folder: Path) -> list[dict[str, Any]]:
    """The index of a folder's agents, as it is written to INDEX."""
    found = [describe(folder / name) for name in names(folder)]
    hashed = [dataclasses.replace(entry, sha256=digest(folder / entry.name / AGENT)[1]) for entry in found]
    return [dataclasses.asdict(entry) for entry in hashed]


def names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob(f"*/{AGENT}"))


def listed(where: Source) -> Iterator[Listed]:
    """The agents of a folder and those of the index, by name. One that cannot be read hides no other."""
    here, known = names(where) if isinstance(where, Path) else [], index()
    for name in sorted({*here, *known}):
        if name not in here:
            place = where if isinstance(where, str) else "not here"
            yield Listed(name, known[name], "cached" if is_agent(cached(name), known[name]) else place)
            continue
        assert isinstance(where, Path)
        try:
            yield Listed(name, describe(where / name), "here")
        except UserError as error:
            yield Listed(name, None, str(error))


def describe(folder: Path) -> Entry:
    """The entry of an agent's folder, without its hash."""
    with read_errors(folder / DESCRIPTION, "the description of an agent"):
        card = read_json(folder / DESCRIPTION)
        config, rooms = card["config"], card["row"].get("rooms")
        score = read_score(folder)
        return Entry(
            name=folder.name,
            game=text(config["env"]["id"]),
            policy=text(config["policy"]),
            bonus=text(config["bonus"]),
            has_bonus=card.get(NO_BONUS) is not True,
            frames=int(number(card["frames"])),
            score=score.mean if score else None,
            interval_95=(score.low, score.high) if score else None,
            rooms=int(number(rooms)) if rooms else None,
            size=(folder / AGENT).stat().st_size,
            sha256="",
        )


def read_score(folder: Path) -> Score | None:
    """The evaluation of a folder, or None without one."""
    path = folder / EVALUATION
    if not path.exists():
        return None
    with read_errors(path, "an evaluation; rnd evaluate writes one"):
        data = read_json(path)
        low, high = data["mean_return_interval_95"]
        fields = ("mean_return", "std_return", "median_return", "best_return")
        mean, std, median, best = (number(data[field]) for field in fields)
        return Score(mean, std, number(low), number(high), median, best, int(number(data["episodes"])))


def number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{value!r:.80} is no number")
    return float(value)


def text(value: Any) -> str:
    """A string that can be printed: it may be a stranger's."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_TEXT:
        raise TypeError(f"{value!r:.80} is no name")
    return value


# --- where the files are --------------------------------------------------------------------------------


def source(named: str | None = None) -> Source:
    """`named` (a flag) or $RND_ZOO; else results/ in the working folder, or that of the checkout that rnd runs from."""
    if chosen := named or os.environ.get(VARIABLE):
        if chosen.startswith(("http://", "https://")):
            return chosen.rstrip("/")
        if not Path(chosen).is_dir():
            raise UserError(f"the zoo {chosen} is no folder and no http(s) address; see --zoo and {VARIABLE}")
        return Path(chosen)
    checkout = Path(__file__).parents[3]
    folders = [Path("results"), *([checkout / "results"] if (checkout / "pyproject.toml").is_file() else [])]
    return next((folder for folder in folders if folder.is_dir()), None)


def locate(target: str, named: str | None = None) -> Path:
    """The path of a run, a file (also by the name of its folder in a zoo), or an agent of the zoo, which is checked
    against the index and downloaded if needed. `named`: the source, instead of $RND_ZOO."""
    if not target.startswith(PREFIX):
        path = Path(target)
        only_agent = (path / AGENT).is_file() and not (path / "checkpoints").exists()
        return path / AGENT if only_agent else path
    name, where, known = target.removeprefix(PREFIX), source(named), index()
    here = names(where) if isinstance(where, Path) else []
    if name not in {*here, *known}:
        raise UserError(f"the zoo has no agent {name!r}; {nearest(name, sorted({*here, *known}))}")
    if isinstance(where, Path) and name in here:
        path = where / name / AGENT
        if name in known and not is_agent(path, known[name]):
            raise UserError(
                f"{path} is not the agent {name} of the index: its size or SHA-256 differs; name the file itself to "
                "play it, or give its folder another name"
            )
        return path
    if is_agent(cached(name), known[name]):
        return cached(name)
    if isinstance(where, str):
        return download(known[name], where)
    raise UserError(f"the agent {name} is not here; {advice()}")


def advice() -> str:
    """What to do where agents of the index are not here."""
    return (
        f"set {VARIABLE} (or --zoo) to a folder or an http(s) address that has NAME/{AGENT}, for example to results/ "
        "in a clone of the repository"
    )


def cached(name: str) -> Path:
    return cache_folder("zoo") / name / AGENT


def is_agent(path: Path, entry: Entry) -> bool:
    """Whether a file is that of the index."""
    return path.is_file() and path.stat().st_size == entry.size and digest(path)[1] == entry.sha256


def download(entry: Entry, address: str) -> Path:
    """Put an agent into the cache, if it is the one of the index."""
    url, path = f"{address}/{urllib.parse.quote(entry.name)}/{AGENT}", cached(entry.name)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as reply:
            data: bytes = reply.read(entry.size + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UserError(f"{url} cannot be read ({error}); {advice()}") from error
    if len(data) != entry.size or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise UserError(f"{url} is not the agent {entry.name} of the index: its size or SHA-256 differs; {advice()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    return path
