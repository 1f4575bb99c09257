"""Where the wall time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by name: `with clock("emulation"): ...`; `lap` tells and forgets them."""

    def __init__(self, *names: str):
        self.seconds = dict.fromkeys(names, 0.0)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - begun

    def lap(self) -> dict[str, float]:
        seconds, self.seconds = self.seconds, dict.fromkeys(self.seconds, 0.0)
        return seconds
