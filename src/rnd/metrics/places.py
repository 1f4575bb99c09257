"""`rooms.json` between checkpoints, so that a running run has a map: when and how often each place was entered."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rnd.foundation.files import write_atomically
from rnd.metrics.episodes import EpisodeStats
from rnd.metrics.metrics import Row

EVERY = 15.0
"""Seconds between writes."""


class PlacesWriter:
    """Writes {place: [frame of the first entry, times entered]}; place = level * 256 + room, or y * 256 + x."""

    def __init__(self, folder: Path, episodes: EpisodeStats):
        self.path, self.episodes = folder / "rooms.json", episodes
        self._written = float("-inf")

    def write(self, row: Row, timing: Row) -> None:
        if time.monotonic() - self._written >= EVERY:
            self._written = time.monotonic()
            write_atomically(self.path, json.dumps(self.episodes.state_dict()["rooms"]) + "\n")

    def flush(self) -> None:
        """Checkpoints write the map themselves."""

    def close(self) -> None:
        """The last checkpoint has written the last map."""
