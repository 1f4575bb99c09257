"""Row 51: what a stranger has named does not steer the terminal."""

from __future__ import annotations

import pytest

from rnd.foundation.console import printable, say, warn


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\rb\x9b31m\x7f", "a\\rb\\x9b31m\\x7f"),
        ("\u202eexe", "\\u202eexe"),
        ("two\n\tlines, 3 × 4 −1 [bold] ü", "two\n\tlines, 3 × 4 −1 [bold] ü"),
    ],
)
def test_control_characters_are_shown_as_text(text, shown, capsys):
    from rich.console import Console

    assert printable(text) == shown
    say(Console(width=400), text)
    warn(text)
    out, err = capsys.readouterr()
    assert err == f"{shown}\n" and out.split() == shown.split()
