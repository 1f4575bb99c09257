"""CSV text against Python's reader."""

import csv
import io

from rnd.foundation.tables import csv_text


def test_text_and_floats_are_read_back():
    rows = [("a, b", 0.1 + 0.2, 3), ('"', float("inf"), -1)]
    read = list(csv.reader(io.StringIO(csv_text(("name", "x", "n"), rows))))
    assert read[0] == ["name", "x", "n"]
    assert [(name, float(x), int(n)) for name, x, n in read[1:]] == rows
