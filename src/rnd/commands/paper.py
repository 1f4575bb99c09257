"""rnd paper NAME [flags]: the paper's experiments."""

from __future__ import annotations

import importlib

from rnd.errors import UserError, nearest

PAPER = {
    "figure2": "rnd.paper.figure2",
    "noisy-tv": "rnd.paper.noisy_tv",
    "prediction-errors": "rnd.paper.prediction_errors",
}
"""Name to a module with a `main(arguments)`."""


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("rnd paper NAME [flags]: " + ", ".join(PAPER) + "; rnd paper NAME --help explains the flags")
        return
    name, rest = arguments[0], arguments[1:]
    if name not in PAPER:
        raise UserError(f"unknown experiment {name!r}; {nearest(name, PAPER)}")
    importlib.import_module(PAPER[name]).main(rest)
