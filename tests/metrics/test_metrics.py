"""Tables that grow: cut back to a checkpoint, and to whole lines."""

import pytest

from rnd.metrics.metrics import read_csv, truncate

TEXT = "iteration,frames\n1,64\n2,128\n3,192\n"


@pytest.mark.parametrize(("size", "rows"), [(0, 0), (17, 0), (22, 1), (25, 1), (28, 2), (29, 2), (100, 3)])
def test_a_table_is_cut_to_whole_lines(tmp_path, size, rows):
    """A size that a checkpoint recorded may lie within a line: where the disk was full, or the file was altered."""
    path = tmp_path / "metrics.csv"
    path.write_text(TEXT)
    truncate(path, size)
    kept = path.read_text()
    assert TEXT.startswith(kept) and (not kept or kept.endswith("\n"))
    assert list(read_csv(path).get("iteration", [])) == list(range(1, rows + 1))


def test_a_table_that_is_not_there_stays_away(tmp_path):
    truncate(tmp_path / "metrics.csv", 10)
    assert not (tmp_path / "metrics.csv").exists()
