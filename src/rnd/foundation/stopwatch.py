"""Wall-clock time by name."""

from __future__ import annotations

import time


class Stopwatch:
    """Seconds by name: `with clock("emulation"): ...`; `lap` returns and resets them."""

    def __init__(self, *names: str):
        self.seconds = dict.fromkeys(names, 0.0)
        self._spans = {name: Span(self, name) for name in names}

    def __call__(self, name: str) -> Span:
        return self._spans[name]

    def lap(self) -> dict[str, float]:
        seconds, self.seconds = self.seconds, dict.fromkeys(self.seconds, 0.0)
        return seconds


class Span:
    """The time inside a `with`. Made once per name: a rollout has hundreds of them."""

    def __init__(self, clock: Stopwatch, name: str):
        self.clock, self.name, self.begun = clock, name, 0.0

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.clock.seconds[self.name] += time.perf_counter() - self.begun
