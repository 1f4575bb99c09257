"""What a bench prints while it measures: a line per measurement, on standard error, beside the table or JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from rnd.foundation.text import duration

T = TypeVar("T")


class Progress:
    """`total` measurements, one after the other."""

    def __init__(self, total: int):
        self._total, self._done, self._begun = total, 0, time.monotonic()

    def __call__(self, what: str, measure: Callable[[], T], result: Callable[[T], str]) -> T:
        """Measure `what`. Prints its name before, and its result and the estimated time of the remaining measurements
        after."""
        print(f"{self._done + 1} of {self._total}: {what} ... ", end="", file=sys.stderr, flush=True)
        try:
            measured = measure()
        except BaseException:
            print(file=sys.stderr)  # the error gets a line of its own
            raise
        self._done += 1
        left = (time.monotonic() - self._begun) / self._done * (self._total - self._done)
        more = f"; about {duration(left)} left" if self._done < self._total else ""
        print(f"{result(measured)}{more}", file=sys.stderr, flush=True)
        return measured
