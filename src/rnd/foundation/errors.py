"""Errors that are meant for people: one line that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Wrong input. The command line prints one line and exits with code 2."""

    reported = False
    """Another process of the run prints it."""


class RunError(Exception):
    """A run that cannot continue (a bad environment, a full disk). One line, exit code 1."""

    reported = False
    """Another process of the run prints it."""


class InterruptedRunError(Exception):
    """A run that was asked to stop and has saved a checkpoint. `code` is the exit code of the process."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


def install(extra: str) -> str:
    """The command that installs an extra of the installed distribution. `rnd` on the package index is another one."""
    from importlib import metadata

    ours = "rnd-exploration"  # found by its entry point: an editable installation does not list the package's files
    found = [point.dist.name for point in metadata.entry_points(value="rnd.cli:main") if point.dist]
    name = found[0] if found and ours not in found else ours
    return f'pip install "{name}[{extra}]"'


def nearest(word: str, choices: Iterable[str], count: int = 3) -> str:
    """Name the choices that look most like `word`, as the end of an error message."""
    names = sorted(set(choices))
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), lowered, n=count, cutoff=0.5)
    within = [name for name in names if word.lower() in name.lower()]
    found = ([lowered[name] for name in close] or within or names)[:count]
    return "nearest: " + ", ".join(found) if found else "no choices are known"
