"""A picture is written as PNG and SVG, and the numbers behind it as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def new_figure(columns: int = 1, width: float = 6.0, height: float = 4.0) -> tuple[Any, Any]:
    """A figure and its axes, without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, columns)


def save_picture(figure: Any, path: Path) -> Path:
    """Write `path`.png and `path`.svg; the same numbers give the same bytes."""
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "rnd"}):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=120, metadata={"Software": None})
    return path.with_suffix(".png")


def save_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
