"""Signals as requests: the run finishes its iteration, writes a checkpoint and exits."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from rnd.foundation.console import write_error
from rnd.foundation.errors import InterruptedRunError

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells count."""
PREEMPTED = 75
"""Exit code after the others: EX_TEMPFAIL of sysexits.h. The run is saved; a scheduler may start `rnd resume`."""

SAVING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""SIGHUP: the terminal or ssh session was closed. SIGUSR1: what a cluster may send before the time limit."""
CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, **dict.fromkeys(SAVING, PREEMPTED)}


class Interrupts:
    """`with Interrupts() as stop:` and then read `stop.code` between iterations.

    The second Ctrl-C exits at once, through a KeyboardInterrupt; the third kills. Signals arrive in the main thread
    only; in others nothing is installed. The end of torchrun counts as a signal too: its ranks would train on alone.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code of the signal that arrived, or None."""
        self._before: dict[int, Any] = {}
        self._torchrun = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()  # nohup
            self._before = {number: signal.signal(number, self._on) for number in CODES.keys() - ignored}
        return self

    def check_parent(self) -> None:
        """Called once per iteration: request a stop where torchrun has ended."""
        if self._torchrun not in (None, os.getppid()):
            self._request("torchrun has ended", PREEMPTED)

    def raise_if_requested(self, message: str) -> None:
        """For a loop that has nothing to finish: leave it where a signal has arrived."""
        if self.code is not None:
            raise InterruptedRunError(message, self.code)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on(self, number: int, _: FrameType | None) -> None:
        if self.code is not None and number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            raise KeyboardInterrupt
        self._request("Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name, CODES[number])

    def _request(self, why: str, code: int) -> None:
        if self.code is None:
            self.code = code
            write_error(f"\n{why}: finishing this iteration and saving; Ctrl-C again exits at once")
