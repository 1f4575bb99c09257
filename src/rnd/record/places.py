"""`rooms.json`: when and how often every room (or cell of a grid) was entered, kept up to date while the run goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rnd.record.episodes import EpisodeStats
from rnd.record.folder import write_atomically
from rnd.record.metrics import Row

EVERY = 15.0
"""Seconds between writes: a map is for people, who do not look more often."""


class PlacesWriter:
    """Writes {place: [frame of the first entry, times entered]}; place = level * 256 + room, or y * 256 + x."""

    def __init__(self, folder: Path, episodes: EpisodeStats):
        self.path, self.episodes = folder / "rooms.json", episodes
        self._written = float("-inf")

    def write(self, row: Row, timing: Row) -> None:
        if time.monotonic() - self._written >= EVERY:
            self._save()

    def close(self) -> None:
        self._save()

    def _save(self) -> None:
        self._written = time.monotonic()
        rooms = {str(place): entry for place, entry in sorted(self.episodes.rooms.items())}
        write_atomically(self.path, json.dumps(rooms) + "\n")
