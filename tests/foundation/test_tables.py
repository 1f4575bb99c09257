"""CSV text against Python's reader."""

import csv
import io

import pytest

from rnd.foundation.tables import csv_text, significant


def test_text_and_floats_are_read_back():
    rows = [("a, b", 0.1 + 0.2, 3), ('"', float("inf"), -1)]
    read = list(csv.reader(io.StringIO(csv_text(("name", "x", "n"), rows))))
    assert read[0] == ["name", "x", "n"]
    assert [(name, float(x), int(n)) for name, x, n in read[1:]] == rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.6838, "0.684"),
        (-0.05, "-0.0500"),
        (1, "1.00"),
        (12.345, "12.3"),
        (4558.3, "4,558"),
        (3e-9, "3e-09"),
    ],
)
def test_three_significant_digits(value, text):
    assert significant(value) == text
