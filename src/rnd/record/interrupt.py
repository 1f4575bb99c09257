"""Ctrl-C and SIGTERM as requests: the run finishes its iteration, writes a checkpoint and exits."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells count."""
PREEMPTED = 75
"""Exit code after SIGTERM: EX_TEMPFAIL of sysexits.h. The run is saved; a scheduler may start `rnd resume`."""

CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: PREEMPTED}


class Interrupts:
    """`with Interrupts() as stop:` and then read `stop.code` between iterations.

    The second Ctrl-C exits at once, through a KeyboardInterrupt; the third kills. Signals arrive in the main thread
    only; in others nothing is installed.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code of the signal that arrived, or None."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on) for number in CODES}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on(self, number: int, _: FrameType | None) -> None:
        if self.code is not None and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            raise KeyboardInterrupt
        if self.code is None:
            self.code = CODES[number]
            name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
            # Not print: the signal may have come in the middle of one, and a stream cannot be entered twice.
            os.write(2, f"\n{name}: finishing this iteration and saving; Ctrl-C again exits at once\n".encode())
