"""The user's own code that a config names (`module:attribute`): when it may be imported.

Who types `rnd train my_module:make_env` has chosen to run that code: its name and the file where it was found are
remembered for this user. A run folder or an agent may be a stranger's, and name any code that is installed here, or lie
beside a file of that name: it is imported only if both are remembered, with `--trust`, or after a question that names
it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from rnd.config import Config
from rnd.config.components import BONUSES, POLICIES, WRITERS, writer_names
from rnd.foundation.console import warn
from rnd.foundation.errors import UserError
from rnd.foundation.files import open_regular, read_file


def named_code(config: Config) -> list[str]:
    """The names in a config whose code is neither ours nor registered by this process."""
    parts = [(BONUSES, config.bonus), (POLICIES, config.policy), *((WRITERS, name) for name in writer_names(config))]
    found = [name for registry, name in parts if ":" in name and not registry.imported(name)]
    return [*([config.env.id] if ":" in config.env.id else []), *found]


def check(config: Config, where: Path, trusted: bool) -> None:
    """Refuse a config of `where` that names code which nobody has agreed to run. Imports nothing."""
    strange = [name for name in dict.fromkeys(named_code(config)) if not known(name)]
    if not strange or trusted:
        return
    names = ", ".join(strange)
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        warn(f"{where} names code that you have not trained with: {names}")
        print("It runs with your rights. Run it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            remember(config)
            return
    raise UserError(f"{where} names code that you have not trained with: {names}; if you trust it, add --trust")


def remember(config: Config) -> None:
    """Add the names of a config to those that need no question."""
    entries = [f"{name}\t{file_of(name)}" for name in named_code(config) if not known(name)]
    if not entries:
        return
    with suppress(OSError, RuntimeError):  # no home, or one that cannot be written: the question comes again
        memory_file().parent.mkdir(parents=True, exist_ok=True)
        with open_regular(memory_file(), "a") as file:
            file.write("".join(f"{entry}\n" for entry in entries))


def known(name: str) -> bool:
    """Whether code has been agreed to, in the file where an import would find it now. Where it would find none, no code
    can run, and the name is enough."""
    where, entries = file_of(name), remembered()
    return f"{name}\t{where}" in entries if where else any(entry.split("\t")[0] == name for entry in entries)


def file_of(name: str) -> str:
    """The file of the outermost package or module of `module:attribute`, or "". Imports nothing."""
    top = name.partition(":")[0].partition(".")[0]
    try:
        if top in sys.modules:
            spec = sys.modules[top].__spec__
        else:  # the working folder comes first, as for `rnd.config.components.import_module`
            spec = PathFinder.find_spec(top, [str(Path.cwd())]) or find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return ""
    places = [spec.origin] if spec and spec.has_location else list((spec and spec.submodule_search_locations) or [])
    return os.path.realpath(places[0]) if places and places[0] else ""


def remembered() -> list[str]:
    with suppress(OSError, RuntimeError):
        return read_file(memory_file()).decode(errors="replace").split("\n")[:-1]
    return []


def memory_file() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rnd" / "trusted"
