"""Translated games on this machine: compiled once per game, kept in the user's cache, loaded by the core.

A translated game plays the same bytes as the interpreter, faster. It is made from the ROM here, by the compiler that is
here, and is never required: without a compiler the interpreter plays.

    python -m rnd.envs.native.translation montezuma_revenge    makes a game's entry, or finds it
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from rnd.envs.native._core import AtariBatch, record_reached, scheme, sources
from rnd.envs.native.roms import read_rom
from rnd.envs.native.translation_cache import CacheEntry, NotTranslatedError, compiler_of_entry, not_ours, unusable
from rnd.envs.native.translator import Program

SOURCES = Path(__file__).parent
RECORDED_FRAMES = 120_000
FLAGS = "-std=gnu++20 -O3 -shared -fPIC -fvisibility=hidden -fno-gcse -fno-crossjumping -ffp-contract=off -w"
TARGET_FLAGS = {
    "portable": "",
    "avx2": "-DRND_AVX2 -mavx2 -mbmi -mbmi2",
    "avx512": "-DRND_AVX512 -mavx2 -mbmi -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi"
    " -mprefer-vector-width=256",
}
"""As in CMakeLists.txt."""


@cache
def source_hash() -> str:
    """SHA-256 of the installed sources, computed as CMakeLists.txt does."""
    headers = (file for file in SOURCES.iterdir() if file.suffix in (".hpp", ".inc", ".def"))
    files = [*sorted(headers), SOURCES / "translated.cpp"]
    hashes = "".join(hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists())
    return hashlib.sha256(hashes.encode()).hexdigest()


@cache
def compiler(name: str | None) -> tuple[list[str], str]:
    """The command of the C++ compiler ($CXX, else the first of the usual ones) and its version."""
    try:
        named = shlex.split(name or "")
    except ValueError as error:
        raise NotTranslatedError(f"CXX={name} is no command: {error}") from error
    for command in [named] if named else [["c++"], ["g++"], ["clang++"]]:
        with suppress(OSError):
            version = [*command, "--version"]
            done = subprocess.run(version, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode == 0:
                return command, done.stdout
    raise NotTranslatedError(f"no C++ compiler{f' named {name}' if named else ''}")


class TranslatedGame(CacheEntry):
    """The game of a ROM, for one core, instruction set and compiler. Without a compiler an entry of any one is used."""

    def __init__(self, game: str, rom: bytes, simd: str):
        if source_hash() != sources:
            raise NotTranslatedError("the installed sources are not those of the core; build it again")
        self.rom, self.simd = rom, simd
        ours = [SOURCES / name for name in ("instructions.py", "translator.py", "translation.py")]
        translator = hashlib.sha256(b"".join(file.read_bytes() for file in ours)).hexdigest()
        rom_hash = hashlib.sha256(rom).hexdigest()
        key = {"rom": rom_hash, "core": sources, "translator": translator, "simd": simd}
        try:
            self.command, version = compiler(os.environ.get("CXX"))
        except NotTranslatedError:
            found = compiler_of_entry(game, key)
            if found is None:
                raise
            self.command, version = [], found
        super().__init__(game, {**key, "compiler": version})

    def load_or_make(self, batch: AtariBatch) -> None:
        if not self.load(batch):
            batch.translate(str(self.make()))

    def make(self, stopped: Callable[[], bool] = lambda: False) -> Path:
        """The shared object, from the cache or new. One process makes it; others wait for it."""
        self._make_cache_folder()
        try:
            with self._lock(stopped):
                return self.find() or self._make_entry(stopped)
        except OSError as error:
            raise unusable(error) from error

    def _make_entry(self, stopped: Callable[[], bool]) -> Path:
        prefix = f".new-{self.folder.name}-"
        for left in self.folder.parent.glob(f"{prefix}*"):  # by a process that was killed: the lock is ours
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=self.folder.parent) as folder:
            self._compile(Path(folder), stopped)
            (Path(folder) / "entry").rename(self.folder)
        return self.library

    def _make_cache_folder(self) -> None:
        folder = self.folder.parent
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise NotTranslatedError(f"cannot make {folder}: {error.strerror}") from error
        problem = not_ours(folder, stat.S_IFDIR)
        if problem:
            raise NotTranslatedError(f"the cache folder {folder} is refused ({problem})")

    @contextmanager
    def _lock(self, stopped: Callable[[], bool]) -> Iterator[None]:
        """A lock that ends with the process that holds it."""
        with (self.folder.parent / f"{self.folder.name}.lock").open("w") as file:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if stopped():
                    raise NotTranslatedError("the run has ended")
                time.sleep(0.2)
            yield

    def _compile(self, folder: Path, stopped: Callable[[], bool]) -> None:
        """Write a whole entry to the new folder `entry` in `folder`."""
        if not self.command:
            raise NotTranslatedError("no C++ compiler")
        program = Program(self.rom, scheme(self.game), record_reached(self.rom, self.game, RECORDED_FRAMES, 1))
        (folder / "blocks.inc").write_text(program.blocks())
        (folder / "entries.inc").write_text(program.entries())
        entry = folder / "entry"
        entry.mkdir(mode=0o700)
        names = [f"-DRND_TARGET={self.simd}", f'-DRND_SOURCES="{sources}"', f"-I{folder}", f"-I{SOURCES}"]
        flags = [*FLAGS.split(), *TARGET_FLAGS[self.simd].split(), *names]
        command = [*self.command, *flags, str(SOURCES / "translated.cpp"), "-o", str(entry / "game.so")]
        if shutil.which("nice"):
            command = ["nice", *command]
        with (folder / "errors").open("w+") as errors:
            process = subprocess.Popen(command, stdout=errors, stderr=errors, start_new_session=True)
            while process.poll() is None:
                if stopped():
                    with suppress(ProcessLookupError):  # it has just ended
                        os.killpg(process.pid, 15)
                time.sleep(0.05)
            errors.seek(0)
            lines = errors.read().splitlines()
        if process.returncode:
            first = next((line for line in lines if "error" in line), lines[0] if lines else "it was stopped")
            raise NotTranslatedError(f"{self.command[0]} failed: {first[:200]}")
        (entry / "game.so").chmod(0o600)
        manifest = {**self.key, "sha256": hashlib.sha256((entry / "game.so").read_bytes()).hexdigest()}
        (entry / "manifest.json").write_text(json.dumps(manifest))
        (entry / "manifest.json").chmod(0o600)


class BackgroundTranslation:
    """Makes a game's entry in a thread, while the interpreter plays, and loads it into the batch."""

    def __init__(self, batch: AtariBatch, game: TranslatedGame):
        self.stopped = self.loaded = False
        self.thread = threading.Thread(target=self._run, args=(batch, game), daemon=True)
        self.thread.start()

    def _run(self, batch: AtariBatch, game: TranslatedGame) -> None:
        try:
            batch.translate(str(game.make(lambda: self.stopped)))
            self.loaded = True
        except (NotTranslatedError, ValueError) as error:
            if not self.stopped:
                print(f"{game.game} is not translated: {error}; the interpreter plays", file=sys.stderr)

    def close(self) -> None:
        self.stopped = True
        self.thread.join()


def main() -> int:
    import numpy as np

    for game in sys.argv[1:]:
        start = time.perf_counter()
        rom = read_rom(game)
        try:
            batch = AtariBatch(rom, game, np.zeros(1, np.uint64), threads=1)
            translated = TranslatedGame(game, rom, batch.simd)
            translated.load_or_make(batch)
        except (NotTranslatedError, ValueError) as error:
            print(f"{game} is not translated: {error}", file=sys.stderr)
            return 1
        print(f"{translated.library} {time.perf_counter() - start:.1f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
