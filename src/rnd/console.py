"""Text on the console as it is."""

from __future__ import annotations

from rich.console import Console


def say(console: Console, text: str) -> None:
    """Print `text` without markup, highlighting or wrapping."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)
