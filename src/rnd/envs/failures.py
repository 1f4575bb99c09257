"""What went wrong in an environment, for people: one line with its number, and the original traceback as a note."""

from __future__ import annotations

import traceback

from rnd.errors import RunError, UserError


def describe(error: BaseException) -> tuple[str, str]:
    """How the line about the environment goes on, and the traceback; errors meant for people need none."""
    if isinstance(error, RunError | UserError):
        return f": {error}", ""
    text = "".join(traceback.format_exception(error)).rstrip()
    return f" raised {type(error).__name__}: {error}", text


def environment_error(env: int | None, line: str, trace: str) -> RunError:
    """The error that stops the run because of environment number `env`; None: a vector environment does not tell."""
    error = RunError(f"environment {env}{line}" if env is not None else f"the vector environment{line}")
    if trace:
        error.add_note(trace)
    return error
