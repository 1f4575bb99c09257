"""Train one cell, or go on with it where it stopped: what every scheduler calls, through `rnd paper --cell FILE`.

A cell is a process of its own, so that a crash costs one cell. Where its standard input is a pipe, the end of that
pipe means that the scheduler is gone: the cell saves itself and leaves.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from pathlib import Path

from rich.console import Console

from rnd.config import Config


def train(path: Path) -> None:
    """Train the cell whose config lies at `path`."""
    from rnd import run

    config = Config.from_dict(json.loads(path.read_text()))
    config.validate()
    leave_with_the_scheduler()
    folder = Path(config.out) / config.run_name
    if folder.is_dir():
        run.resume(folder, Console())
    else:
        run.start(config, Console())


def leave_with_the_scheduler() -> None:
    """SIGTERM to ourselves when the other end of standard input closes, in whatever way."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=wait, daemon=True).start()
