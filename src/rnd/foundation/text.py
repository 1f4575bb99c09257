"""Numbers and times as people read them."""

from __future__ import annotations

import math


def count(value: float) -> str:
    """1,234 or 1.97 G or 100 M: short and readable."""
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.2f}".rstrip("0").rstrip(".") + f" {letter}"
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """1:02:03, or 12 d 3 h from two days on."""
    seconds = max(0.0, seconds)
    if seconds >= 2 * 86400:
        return f"{int(seconds // 86400)} d {int(seconds % 86400 // 3600)} h"
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


def significant(value: float) -> str:
    """A number with three significant digits, or with all digits of its whole part: 0.684, 12.3, 4,558."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    before = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, 2 - before)}f}" if before > -5 else f"{value:.3g}"
