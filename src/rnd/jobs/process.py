"""A run in a process of its own, `rnd train --run-config FILE`: how it is started, and what it does there."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from rich.console import Console

from rnd.config import Config
from rnd.foundation.files import open_regular, read_errors, read_json, write_json


def start_process(
    config: Config, path: Path, output: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process that trains `config`, which it reads from `path`.

    It has a session of its own: Ctrl-C reaches this process alone, which then stops the run. The pipe on its standard
    input closes when this process ends, also by SIGKILL.
    """
    write_json(path, config.to_dict())
    return subprocess.Popen(
        [sys.executable, "-m", "rnd", "train", "--run-config", str(path)],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment,
    )


def last_line(log: Path) -> str:
    """The last line of a log. Only the end of the file is read."""
    with open_regular(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 2**16))
        lines: list[str] = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"


def train(path: Path) -> None:
    """Train the run whose config file is `path`, or resume it with this config where its folder exists."""
    from rnd import run

    with read_errors(path, "a config"):
        config = Config.from_dict(read_json(path))
        config.validate()
    stop_with_the_parent()
    folder = Path(config.out) / config.run_name
    if folder.is_dir():
        run.resume(folder, Console(), given=config)
    else:
        run.start(config, Console())


def stop_with_the_parent() -> None:
    """Send SIGTERM to this process when the pipe on its standard input closes, because the process that started it has
    ended. The run then saves a checkpoint and exits. Does nothing where standard input is no pipe."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=wait, daemon=True).start()
