"""rnd bench WHAT [flags]."""

from __future__ import annotations

import importlib

from rnd.cli import parse
from rnd.foundation.errors import UserError, nearest

BENCHES = {
    "envs": ("rnd.bench.envs", "frames/s of the Atari backends beside ale-py's AtariVectorEnv"),
    "learner": ("rnd.bench.learner", "frames/s of the update alone, on synthetic frames"),
    "start": (
        "rnd.bench.start",
        "seconds from the command to the end of the first iteration, twice: caches empty, filled",
    ),
    "train": ("rnd.bench.train", "frames/s of training beside its two limits, and the shares of its wall time"),
}
"""Name to (module with a dataclass `Options` and `run(options, console)`, one line for --help)."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("rnd bench WHAT [flags]\n", *(f"  {name:<8} {text}" for name, (_, text) in BENCHES.items()), sep="\n")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in BENCHES:
        raise UserError(f"unknown bench {name!r}; {nearest(name, BENCHES)}")
    path, text = BENCHES[name]
    bench = importlib.import_module(path)
    options = parse(bench.Options, rest, prog=f"rnd bench {name}", description=text)

    from rich.console import Console

    return int(bench.run(options, Console()))
