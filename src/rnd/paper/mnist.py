"""MNIST from its four original files, in a folder or downloaded; without a network, scikit-learn's small digits."""

from __future__ import annotations

import gzip
import hashlib
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from rnd.foundation.console import say
from rnd.foundation.errors import UserError, install
from rnd.foundation.files import cache_folder, read_file, write_atomically

FILES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
"""Name to SHA-256 of the files as they were published."""

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
TIMEOUT = 20.0
CHUNK = 1 << 16


@dataclass(frozen=True)
class Digits:
    """Images of digits, [count, pixels] float32 in [0, 1], and their labels."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    source: str
    """Name of the data set, for the title of the figure."""


def load(folder: Path | None, console: Console, mirrors: Iterable[str] = MIRRORS, cache: Path | None = None) -> Digits:
    """The digits of `folder`; if None, of the cache or a mirror; without a network, scikit-learn's digits."""
    if folder is not None:
        return read_folder(folder)
    cache = cache or cache_folder("mnist")
    try:
        download(cache, console, mirrors)
    except OSError as error:
        text = f"MNIST cannot be downloaded ({error}); using the 8×8 digits of scikit-learn instead"
        say(console, f"{text}. --data DIR reads the four original files")
        return scikit_digits()
    return read_folder(cache)


def read_folder(folder: Path) -> Digits:
    """The digits of the four files in a folder, whose hashes are checked."""
    for name in FILES:
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no {name}; --data names a folder with {', '.join(FILES)}")
    train_images, train_labels, test_images, test_labels = (read_idx(folder / name) for name in FILES)
    return Digits(flat(train_images), train_labels, flat(test_images), test_labels, "MNIST")


def read_idx(path: Path) -> np.ndarray:
    """A gzipped IDX file: magic number with the number of axes, big-endian sizes, bytes."""
    packed = read_file(path.resolve())
    if hashlib.sha256(packed).hexdigest() != FILES[path.name]:
        raise UserError(f"{path} is not the original file (its SHA-256 differs); delete it and download it again")
    data = gzip.decompress(packed)
    sizes = np.frombuffer(data, ">u4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * len(sizes)).reshape(sizes)


def flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1).astype(np.float32) / 255


def download(cache: Path, console: Console, mirrors: Iterable[str]) -> None:
    """Download the missing files. A file is put into the cache only if its hash is right."""
    cache.mkdir(parents=True, exist_ok=True)
    for name, digest in FILES.items():
        if not (cache / name).is_file():
            write_atomically(cache / name, fetch(name, digest, console, mirrors))


def fetch(name: str, digest: str, console: Console, mirrors: Iterable[str]) -> bytes:
    """The contents of the file from the first mirror whose copy has the right hash."""
    problems = []
    for mirror in mirrors:
        try:
            data = read_url(mirror + name, name, console)
        except OSError as error:
            problems.append(f"{mirror}: {error}")
            continue
        if hashlib.sha256(data).hexdigest() == digest:
            return data
        problems.append(f"{mirror}: wrong SHA-256")
    raise OSError("; ".join(problems) or "no mirrors")


def read_url(url: str, name: str, console: Console) -> bytes:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as reply, Progress(console=console, transient=True) as bar:
        size = int(reply.headers.get("Content-Length") or 0) or None
        with bar.wrap_file(reply, total=size, description=name) as file:
            return b"".join(iter(lambda: file.read(CHUNK), b""))


def scikit_digits() -> Digits:
    """1,797 digits of 8×8 pixels; every fourth one is a test digit."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UserError(
            f"scikit-learn's digits need scikit-learn: {install('digits')}; or --data DIR with the four files of MNIST"
        ) from error
    images, labels = load_digits(return_X_y=True)
    images, held_out = (images / 16).astype(np.float32), np.arange(len(labels)) % 4 == 0
    source = "scikit-learn's 8×8 digits, not MNIST"
    return Digits(images[~held_out], labels[~held_out], images[held_out], labels[held_out], source)
