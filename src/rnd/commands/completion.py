"""rnd completion SHELL: a script with which the shell completes commands, flags and names."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rnd.cli import COMMANDS, parse, positional
from rnd.config.components import BONUSES, POLICIES
from rnd.config.flags import declared
from rnd.foundation.errors import UserError, nearest

DESCRIPTION = "Print the completion script of a shell, bash or zsh. For this shell: source <(rnd completion bash)."

SCRIPT = """\
_rnd() {{
    local command="${{COMP_WORDS[1]}}" words
    if [ "$COMP_CWORD" = 1 ]; then command=""; fi
    case "$command $3" in
        " "*) words="{commands}" ;;
        *" --config" | *" --out" | *" --against" | *" --trace") ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$2"))
}}
complete -o default -F _rnd rnd
"""
SHELLS = {"bash": SCRIPT, "zsh": "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" + SCRIPT}
"""zsh reads bash's script."""


@dataclass(frozen=True)
class Options:
    """`rnd completion` has no flags."""


def main(arguments: list[str]) -> None:
    shell = positional(Options, arguments, "rnd completion SHELL: name bash or zsh")
    parse(Options, arguments, prog="rnd completion SHELL", description=DESCRIPTION)
    if shell not in SHELLS:
        raise UserError(f"no completion for {shell!r}; {nearest(shell, SHELLS)}")
    patterns = {'*" --bonus"': [*BONUSES], '*" --policy"': [*POLICIES]}
    for name, (options, _) in tables().items():
        command = name.split()[0]
        patterns.setdefault(f'"{command} "*', names(command)).extend(declared(options))
    cases = [f'        {key}) words="{" ".join(dict.fromkeys(words))}" ;;' for key, words in patterns.items()]
    print(SHELLS[shell].format(commands=" ".join(COMMANDS), cases="\n".join(cases)), end="")


def names(command: str) -> list[str]:
    """What may follow a command beside flags; files are completed by the shell itself."""
    from rnd.commands.bench import BENCHES
    from rnd.commands.paper import PROGRAMS
    from rnd.config.presets import ATARI_GAMES
    from rnd.paper.experiments import EXPERIMENTS

    known = {
        "train": ATARI_GAMES,
        "sweep": ATARI_GAMES,
        "paper": [*EXPERIMENTS, *PROGRAMS],
        "bench": BENCHES,
        "completion": SHELLS,
    }
    return [*known.get(command, ()), "--help"]


def tables() -> dict[str, tuple[Any, str]]:
    """Every command with the dataclass of its flags, or an instance with the defaults, and its description."""
    from rnd.commands import bench, evaluate, export, import_, paper, replay, report, resume, sweep, train, watch, zoo
    from rnd.config.presets import DEFAULT_JOB, preset
    from rnd.report.options import WatchOptions

    programs = {f"paper {name}": import_module(path) for name, path in paper.PROGRAMS.items()}
    benches = {f"bench {name}": (import_module(path), text) for name, (path, text) in bench.BENCHES.items()}
    return {
        "train": (train.flags_of(preset(DEFAULT_JOB, "choices"), train.Flags), train.DESCRIPTION),
        "resume": (resume.Options, resume.DESCRIPTION),
        "report": (report.Options, report.DESCRIPTION),
        "watch": (WatchOptions, watch.DESCRIPTION),
        "evaluate": (evaluate.Options, evaluate.DESCRIPTION),
        "replay": (replay.Options, replay.DESCRIPTION),
        "zoo": (zoo.Options, zoo.DESCRIPTION),
        "sweep": (train.flags_of(preset(DEFAULT_JOB, "choices"), sweep.Flags), sweep.DESCRIPTION),
        "paper": (paper.Options, COMMANDS["paper"][1]),
        **{name: (module.Options, str(module.__doc__)) for name, module in programs.items()},
        "export": (export.Options, export.DESCRIPTION),
        "import": (import_.Options, import_.DESCRIPTION),
        **{name: (module.Options, text) for name, (module, text) in benches.items()},
        "completion": (Options, DESCRIPTION),
    }
