"""Reading files that a stranger may have made: refused before they are read."""

import lzma
import os
import tracemalloc

import pytest

from rnd.checkpoint.packing import FREE_SIZE, decompress
from rnd.foundation.files import SMALL, chunks, open_regular, read_file, write_atomically


def test_a_file_of_at_most_the_limit_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100)
    assert read_file(tmp_path / "file", limit=100) == b"x" * 100
    with pytest.raises(OSError, match="its 100 bytes are more than 99"):
        read_file(tmp_path / "file", limit=99)
    os.truncate(tmp_path / "file", SMALL + 1)
    with pytest.raises(OSError, match="bytes are more than"):
        read_file(tmp_path / "file")


def test_memory_is_that_of_the_file_and_not_of_the_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100)
    tracemalloc.start()
    read_file(tmp_path / "file", limit=2**28)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_a_large_file_that_is_nearly_all_hole_is_refused(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(OSError, match="nearly all holes"):
        read_file(tmp_path / "file", limit=2**32)


@pytest.mark.parametrize("read", [read_file, lambda path: list(chunks(path)), lambda path: open_regular(path, "rb")])
def test_what_is_no_regular_file_is_refused_at_once(read, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for name, kind in (("fifo", "a FIFO"), ("link", "a symbolic link")):
        with pytest.raises(OSError, match=kind):
            read(tmp_path / name)
    with pytest.raises(OSError, match="a device"):
        read("/dev/zero")


def test_a_packed_file_that_becomes_too_large_is_refused():
    packed = lzma.compress(b"\0" * (FREE_SIZE + 2**25))
    assert len(packed) < 2**17
    with pytest.raises(lzma.LZMAError, match="holds more than"):
        decompress(packed)
    assert decompress(lzma.compress(b"agent")) == b"agent"


def test_a_file_that_cannot_be_written_is_named_itself(tmp_path):
    """Not the name under which it is written first."""
    with pytest.raises(FileNotFoundError) as raised:
        write_atomically(tmp_path / "missing" / "page.html", "")
    assert raised.value.filename == str(tmp_path / "missing" / "page.html")
