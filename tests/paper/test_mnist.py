"""MNIST's files: read, checked, downloaded from a server of our own."""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
import struct
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from rich.console import Console

from rnd.foundation.errors import UserError, install
from rnd.paper import mnist

QUIET = Console(quiet=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Four small files in the original format, whose hashes are the right ones."""
    made = tmp_path / "files"
    made.mkdir()
    random = np.random.default_rng(0)
    hashes = {}
    for name in mnist.FILES:
        shape = (6, 4, 4) if "images" in name else (6,)
        data = random.integers(0, 256 if "images" in name else 10, shape, dtype=np.uint8)
        header = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        (made / name).write_bytes(gzip.compress(header + data.tobytes()))
        hashes[name] = hashlib.sha256((made / name).read_bytes()).hexdigest()
    monkeypatch.setattr(mnist, "FILES", hashes)
    return made


@pytest.fixture
def serve():
    """A mirror of a folder."""
    servers = []

    def start(folder):
        handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
        handler.func.log_message = lambda *_: None
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_folder_is_read_to_the_bit(folder):
    digits = mnist.load(folder, QUIET)
    assert digits.source == "MNIST"
    assert digits.train_images.shape == (6, 16)
    raw = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    assert (digits.train_images * 255).round().astype(np.uint8).tobytes() == raw
    assert digits.test_labels.tolist() == list(gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:])


def test_a_missing_or_changed_file_is_named(folder):
    name = "t10k-labels-idx1-ubyte.gz"
    (folder / name).write_bytes(b"something else")
    with pytest.raises(UserError, match=f"{name} is not the original file"):
        mnist.load(folder, QUIET)
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"has no {name}"):
        mnist.load(folder, QUIET)


def test_download_skips_a_bad_mirror_and_is_kept(folder, serve, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    for name in mnist.FILES:
        (bad / name).write_bytes(b"tampered")
    mirrors = (serve(tmp_path / "nowhere"), serve(bad), serve(folder))
    cache = tmp_path / "cache"
    digits = mnist.load(None, QUIET, mirrors=mirrors, cache=cache)
    assert digits.source == "MNIST"
    assert sorted(path.name for path in cache.iterdir()) == sorted(mnist.FILES)
    again = mnist.load(None, QUIET, mirrors=(), cache=cache)
    assert np.array_equal(again.train_images, digits.train_images)


def test_without_a_network_the_small_digits_or_what_to_do(folder, serve, tmp_path, capsys):
    mirrors = (serve(tmp_path / "nowhere"),)
    try:
        import sklearn  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match=re.escape(install("digits"))):
            mnist.load(None, QUIET, mirrors=mirrors, cache=tmp_path / "cache")
        return
    digits = mnist.load(None, Console(), mirrors=mirrors, cache=tmp_path / "cache")
    assert digits.source == "scikit-learn's 8×8 digits, not MNIST"
    assert digits.train_images.shape[1] == 64
    assert digits.train_images.min() >= 0 and digits.train_images.max() == 1
    assert "cannot be downloaded" in capsys.readouterr().out
