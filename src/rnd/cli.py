"""The command line. Commands are imported when they are called, so that `rnd --help` answers at once."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rnd import __version__
from rnd.config.flags import checked, declared
from rnd.config.ranges import check_ranges
from rnd.foundation.console import printable, protect_output
from rnd.foundation.errors import InterruptedRunError, RunError, UserError, nearest
from rnd.foundation.launch import launched

COMMANDS = {
    "train": ("rnd.commands.train", "train an agent: rnd train [GAME] [flags]"),
    "resume": ("rnd.commands.resume", "continue a run exactly where it was saved: rnd resume RUN [--frames N]"),
    "report": ("rnd.commands.report", "write one page about one or several runs: rnd report RUN..."),
    "watch": ("rnd.commands.watch", "write an episode as video, with the bonus beside it: rnd watch RUN_OR_FILE"),
    "evaluate": ("rnd.commands.evaluate", "score an agent over many episodes: rnd evaluate RUN_OR_FILE"),
    "replay": ("rnd.commands.replay", "play a traced episode again and check it: rnd replay FILE"),
    "zoo": ("rnd.commands.zoo", "list the trained agents that there are"),
    "sweep": ("rnd.commands.sweep", "search for a better config: rnd sweep GAME --trials 20 --jobs 2"),
    "paper": ("rnd.commands.paper", "run an experiment of the paper and draw it: rnd paper figure3 --scale 0.00001"),
    "export": ("rnd.commands.export", "share an agent, or a checkpoint in parts: rnd export RUN [--max-part 15MB]"),
    "import": ("rnd.commands.import_", "join an exported checkpoint into a run folder: rnd import FOLDER"),
    "bench": ("rnd.commands.bench", "measure speed and its limits: rnd bench envs, learner, start or train"),
    "completion": ("rnd.commands.completion", "print a script for the shell's completion: rnd completion bash"),
}
"""Name to (module with a `main(arguments)`, one line for --help)."""

OTHER_NAMES = {
    "--learning-rate": "--lr",
    "--n-steps": "--rollout-steps",
    "--num-steps": "--rollout-steps",
    "--rollout-fragment-length": "--rollout-steps",
    "--batch-size": "--minibatches",
    "--minibatch-size": "--minibatches",
    "--num-minibatches": "--minibatches",
    "--n-epochs": "--epochs",
    "--num-epochs": "--epochs",
    "--update-epochs": "--epochs",
    "--ent-coef": "--entropy-coef",
    "--vf-coef": "--value-coef",
    "--clip-coef": "--clip-range",
    "--clip-param": "--clip-range",
    "--gamma": "--gamma-ext",
    "--lambda": "--gae-lambda",
    "--total-timesteps": "--frames",
    "--n-envs": "--env.num-envs",
    "--num-envs": "--env.num-envs",
    "--num-workers": "--env.workers",
    "--exp-name": "--name",
    "--track": "--writers",
}
"""Flags of CleanRL, Stable-Baselines3 and RLlib, and those that do the same here."""

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `rnd` command."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    protect_output()
    try:
        sys.exit(dispatch(arguments))
    except (UserError, RunError) as error:
        traces = [] if error.reported else getattr(error, "__notes__", [])  # of the user's own code
        print(*map(printable, traces), sep="\n", end="\n" * len(traces), file=sys.stderr)
        fail(str(error), 2 if isinstance(error, UserError) else 1, error.reported)
    except InterruptedRunError as stop:
        fail(str(stop), stop.code, reported=rank() > 0)
    except OSError as error:  # a path that cannot be read or written, a full disk
        fail(": ".join(str(text) for text in (error.filename, error.strerror or error) if text), 1)
    except KeyboardInterrupt:
        fail("interrupted", 130)


def dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and arguments[1:2]:
        return dispatch([arguments[1], "--help"])
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(version())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}; {nearest(name, COMMANDS)}")
    command: Callable[[list[str]], int | None] = importlib.import_module(COMMANDS[name][0]).main
    return command(rest) or 0


def overview() -> str:
    lines = [f"rnd {__version__}: exploration by random network distillation", "", "commands:"]
    lines += [f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join([*lines, "", "rnd COMMAND --help explains the flags; rnd --version names the backends found."])


def version() -> str:
    """The versions of rnd and of the packages and devices that it uses."""
    import torch

    from rnd.checkpoint.folder import package_version
    from rnd.envs import native

    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    lines = [f"rnd {__version__}", f"torch {torch.__version__}", f"cuda {cuda}"]
    lines += [f"{name} {package_version(name) or 'not installed'}" for name in ("ale-py", "gymnasium", "minigrid")]
    lines.append(f"native core: {native.version()}")
    return "\n".join(lines)


def fail(message: str, code: int, reported: bool = False) -> None:
    """Print one line and exit, unless another process of the run prints it."""
    who = f"rank {rank()}: " if rank() else ""
    # Before the ranks have joined, all fail on the same arguments, and one message is enough.
    torch = sys.modules.get("torch")
    joined = torch is not None and torch.distributed.is_initialized()
    if not reported and (rank() == 0 or joined):
        print(f"rnd: {who}{printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(code)


def rank() -> int:
    """This process's rank under torchrun."""
    with contextlib.suppress(UserError):
        return launched().rank
    return 0


def parse(cls: type[T], arguments: list[str], *, prog: str, description: str, default: T | None = None) -> T:
    """Arguments as a dataclass; an error in them becomes one line. `default` decides the types of nested groups."""
    import tyro

    join_lines_of_help()
    check_flags(default or cls, arguments)
    arguments = checked(declared(default or cls), arguments)
    errors = io.StringIO()
    options: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(errors):
            result: T = tyro.cli(cls, args=arguments, prog=prog, description=description, **options)
            check_ranges(result, start=default)
            return result
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(one_line(errors.getvalue())) from None


def join_lines_of_help() -> None:
    """Let tyro break the help of a flag where the terminal ends, and not also where a docstring in the source does."""
    with contextlib.suppress(ImportError):  # not public: without it help is broken twice, and no worse
        from tyro import _strings as strings

        strings.remove_single_line_breaks = joined_lines


def joined_lines(helptext: str) -> str:
    """One line per paragraph."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", helptext.strip()))


def positional(cls: Any, arguments: list[str], missing: str = "") -> str:
    """Remove and return the one argument that is no flag. Without one: an error with the text `missing`, or "" where
    there is no such text or `--help` is given."""
    found = positionals(cls, arguments)
    if len(found) > 1:
        raise UserError(f"one name is wanted, not {len(found)}: {' '.join(found)}; write it before the flags")
    if not found and missing and not {"-h", "--help"} & {*arguments}:
        raise UserError(missing)
    return found[0] if found else ""


def positionals(cls: Any, arguments: list[str]) -> list[str]:
    """Remove and return the arguments that are neither a flag of `cls` nor the value of one, at any position."""
    flags, found, rest = declared(cls), [], []
    switches = {"-h", "--help", *(name for name, flag in flags.items() if flag.is_switch)}
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if not argument:
            raise UserError("an argument is empty; leave it out, or name what it should be")
        if not argument.startswith("-"):
            found.append(argument)
            continue
        rest.append(argument)
        name = argument.replace("_", "-")
        takes_value = "=" not in argument and name not in switches
        while takes_value and waiting and not waiting[0].startswith("--"):  # otherwise its value is missing
            rest.append(waiting.pop(0))
            takes_value = name in flags and flags[name].takes_several
    arguments[:] = rest
    return found


def optional_value(flag: str, arguments: list[str], value: str) -> None:
    """Give a flag that has no value, at the end or before another flag, this one."""
    for at, argument in enumerate(arguments):
        if argument == flag and (at + 1 == len(arguments) or arguments[at + 1].startswith("-")):
            arguments[at] = f"{flag}={value}"


def value_of(name: str, arguments: list[str]) -> str | None:
    """The value of a flag, before the arguments are parsed; the last one counts."""
    found = None
    for argument, following in itertools.zip_longest(arguments, arguments[1:]):
        flag, equals, value = argument.partition("=")
        if flag.replace("_", "-") == f"--{name}":
            found = value if equals else following
    return found


def check_flags(cls: Any, arguments: list[str]) -> None:
    """Refuse an unknown flag and name the nearest one."""
    known = {"--help", "-h", *declared(cls)}
    for argument in arguments:
        flag = argument.split("=", 1)[0].replace("_", "-")
        if flag.startswith("--") and flag not in known:
            ours = OTHER_NAMES.get(flag)
            raise UserError(f"unknown flag {flag}; " + (f"nearest: {ours}" if ours in known else nearest(flag, known)))


def one_line(box: str) -> str:
    """The text inside a framed error message."""
    text = re.sub(r"[─│╭╮╰╯━┃┏┓┗┛]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", box))
    text = " ".join(text.replace("Parsing error", "").split())
    return text.removeprefix("Unrecognized options ") or "the arguments cannot be read"
