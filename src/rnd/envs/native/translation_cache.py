"""The user's cache of translated games. A shared object is code, so an entry is checked before it is used: it must be
ours alone (owner, permissions, no links) and have the hash that its manifest names. A bad entry is removed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path

from rnd.envs.native._core import AtariBatch
from rnd.foundation.files import cache_folder


class NotTranslatedError(Exception):
    """Why a game is not translated, in one line. The interpreter plays it."""


def unusable(error: OSError) -> NotTranslatedError:
    return NotTranslatedError(f"the cache folder {cache_folder('translated')} cannot be used: {error.strerror}")


class CacheEntry:
    """The game of a ROM as a shared object, and the manifest of what it was made from: `key`."""

    def __init__(self, game: str, key: dict[str, str]):
        self.game, self.key = game, key
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        self.folder = cache_folder("translated") / f"{game}-{name[:32]}"
        self.library = self.folder / "game.so"

    def find(self) -> Path | None:
        """The shared object where the cache has it. One that fails a check is removed."""
        try:
            self.folder.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(error) from error
        problem = self.problem()
        if problem is None:
            return self.library
        self.remove(problem)
        return None

    def load(self, batch: AtariBatch) -> bool:
        """Load the game into the batch where the cache has it. An object that cannot be loaded is removed."""
        found = self.find()
        if found is None:
            return False
        try:
            batch.translate(str(found))
        except ValueError:
            self.remove("cannot be loaded")
            return False
        return True

    def problem(self) -> str | None:
        """What is wrong with the entry, or None."""
        manifest = self.folder / "manifest.json"
        for path, kind in ((self.folder, stat.S_IFDIR), (manifest, stat.S_IFREG), (self.library, stat.S_IFREG)):
            problem = not_ours(path, kind)
            if problem:
                return f"is refused ({problem})"
        try:
            found = json.loads(manifest.read_text())
            digest = hashlib.sha256(self.library.read_bytes()).hexdigest()
        except (OSError, ValueError, RecursionError):  # the last: of a deeply nested manifest
            return "is damaged"
        return None if found == {**self.key, "sha256": digest} else "is damaged"

    def remove(self, problem: str) -> None:
        try:
            if self.folder.is_dir() and not self.folder.is_symlink():
                shutil.rmtree(self.folder)
            else:
                self.folder.unlink(missing_ok=True)
        except OSError as error:
            raise NotTranslatedError(f"{self.folder} {problem}, and cannot be removed: {error.strerror}") from error


def compiler_of_entry(game: str, key: dict[str, str]) -> str | None:
    """The version of a compiler that has made a good entry with this key, in which it lacks; None without one."""
    for folder in sorted(cache_folder("translated").glob(f"{game}-*")):
        try:
            version = json.loads((folder / "manifest.json").read_text())["compiler"]
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            continue
        entry = CacheEntry(game, {**key, "compiler": version})
        if entry.folder == folder and entry.problem() is None:
            return str(version)
    return None


def not_ours(path: Path, kind: int) -> str | None:
    """Why `path` must not be trusted: it may be another user's, writable by others, a link, or missing."""
    try:
        found = path.lstat()
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    if stat.S_IFMT(found.st_mode) != kind:
        return f"{path.name} is a link or no {'folder' if kind == stat.S_IFDIR else 'file'}"
    if found.st_uid != os.geteuid():
        return f"{path.name} belongs to another user"
    return f"others may write {path.name}" if found.st_mode & 0o022 else None
