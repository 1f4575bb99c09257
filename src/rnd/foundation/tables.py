"""Tables as CSV text, and numbers as text for people."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A header and one line per row. Floats keep all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def significant(value: float) -> str:
    """A number with three significant digits, or with all digits of its whole part: 0.684, 12.3, 4,558."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    before = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, 2 - before)}f}" if before > -5 else f"{value:.3g}"
