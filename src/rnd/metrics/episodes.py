"""Episode statistics of a run: bounded memory, plain state."""

from __future__ import annotations

from collections import deque
from typing import Any

from rnd.envs.interface import Episode

WINDOW = 100
"""Episodes over which means are reported."""


class EpisodeStats:
    """Returns, lengths, successes and rooms."""

    def __init__(self, success_return: float | None = None, cells: bool = False):
        self.success_return = success_return
        self.cells = cells
        """Places are cells of a grid, so rooms are not counted."""
        self.count = 0
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.place_counts: deque[int] = deque(maxlen=WINDOW)
        """Different rooms or cells in each of the last episodes."""
        self.best_return: float | None = None
        self.rooms: dict[int, list[int]] = {}
        """Room (level * 256 + number) to [frame at which it was first entered, times entered]."""
        self.most_rooms_in_an_episode = 0

    def update(self, episodes: list[Episode], rooms_entered: list[int], frames: int) -> None:
        """Add the episodes of one rollout that ended at `frames`."""
        for episode in episodes:
            self.count += 1
            self.returns.append(episode.episode_return)
            self.lengths.append(episode.length)
            self.place_counts.append(len(episode.rooms))
            best = self.best_return
            self.best_return = episode.episode_return if best is None else max(best, episode.episode_return)
            self.most_rooms_in_an_episode = max(self.most_rooms_in_an_episode, len(episode.rooms))
        for room in rooms_entered:
            self.rooms.setdefault(room, [frames, 0])[1] += 1

    def summary(self) -> dict[str, float | int | None]:
        """The columns of a metrics row; None before the first episode has ended."""
        window = len(self.returns)
        row: dict[str, float | int | None] = {
            "episodes": self.count,
            "return_mean": sum(self.returns) / window if window else None,
            "return_best": self.best_return,
            "length_mean": sum(self.lengths) / window if window else None,
            "success": None,
            "rooms": 0 if self.cells else len({room % 256 for room in self.rooms}),
            "places": len(self.rooms),
            "places_mean": sum(self.place_counts) / len(self.place_counts) if any(self.place_counts) else None,
        }
        if self.success_return is not None and window:
            row["success"] = sum(r > self.success_return for r in self.returns) / window
        return row

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "count": self.count,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "place_counts": list(self.place_counts),
            "best_return": self.best_return,
            "rooms": {str(room): value for room, value in self.rooms.items()},
            "most_rooms_in_an_episode": self.most_rooms_in_an_episode,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = int(state["count"])
        self.returns = deque(state["returns"], maxlen=WINDOW)
        self.lengths = deque(state["lengths"], maxlen=WINDOW)
        self.place_counts = deque(state.get("place_counts", ()), maxlen=WINDOW)  # rnd 0.1 did not count them
        self.best_return = state["best_return"]
        self.rooms = {int(room): list(value) for room, value in state["rooms"].items()}
        self.most_rooms_in_an_episode = int(state["most_rooms_in_an_episode"])
