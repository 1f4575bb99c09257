"""Maps of the places that agents visited: the pyramid of Montezuma's Revenge, rooms of Pitfall!, cells of a grid.

Every place has two colours, by the time of its first entry and by the number of entries; a switch on the page selects.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rnd.record.progress import count
from rnd.report.runs import Group

PYRAMID = ((0, 1, 2), (3, 4, 5, 6, 7), (8, 9, 10, 11, 12, 13, 14), (15, 16, 17, 18, 19, 20, 21, 22, 23))
"""The 24 rooms of a level, row by row: the game starts in room 1, the treasure is in room 15."""
ROOM, GAP = (96, 62), 6
START, TREASURE = 1, 15

WHEN = ((253, 231, 37), (94, 201, 98), (33, 145, 140), (59, 82, 139), (68, 1, 84))
OFTEN = ((255, 240, 217), (253, 187, 132), (239, 101, 72), (153, 0, 0))


@dataclass(frozen=True)
class Visit:
    """All seeds of a group at one place."""

    first: int
    times: int
    runs: int
    of: int

    def words(self, name: str) -> str:
        seeds = f", by {self.runs} of {self.of} runs" if self.of > 1 else ""
        return f"{name}: first after {count(self.first)} frames, entered {self.times:,} times{seeds}"


def visits(group: Group) -> dict[int, Visit]:
    """Earliest first entry and sum of entries over the runs of a group."""
    merged = {}
    for place in {place for run in group.runs for place in run.places}:
        entries = [run.places[place] for run in group.runs if place in run.places]
        first, times = min(first for first, _ in entries), sum(times for _, times in entries)
        merged[place] = Visit(first, times, len(entries), len(group.runs))
    return merged


def map_of(group: Group) -> str:
    """The map for the game of the group; empty where there is nothing to draw."""
    env_id = next((run.config.env.id for run in group.runs if run.config), "")
    found = visits(group)
    if "MontezumaRevenge" in env_id:  # one pyramid per level; a higher one is drawn if a run has reached it
        return "".join(pyramid(level, found) for level in sorted({0, *(place // 256 for place in found)}))
    if not env_id or not found:
        return ""
    return grid(found) if env_id.startswith(("MiniGrid", "BabyAI")) else room_list(found)


def pyramid(level: int, found: dict[int, Visit]) -> str:
    """The 24 rooms of a level."""
    shade = Shade(found)
    width, height = 9 * (ROOM[0] + GAP) - GAP, 4 * (ROOM[1] + GAP) - GAP
    parts, seen = [], 0
    for row, rooms in enumerate(PYRAMID):
        for column, room in enumerate(rooms):
            x, y = (column + 3 - row) * (ROOM[0] + GAP), row * (ROOM[1] + GAP)
            visit = found.get(level * 256 + room)
            seen += visit is not None
            parts.append(_room(room, x, y, visit, shade))
    return (
        f"<h4>Level {level + 1}: {seen} of 24 rooms</h4>"
        f'<svg class="map pyramid" viewBox="-1 -1 {width + 2} {height + 2}" role="img" '
        f'aria-label="rooms of level {level + 1}">{"".join(parts)}</svg>{shade.legend()}'
    )


def _room(room: int, x: int, y: int, visit: Visit | None, shade: Shade) -> str:
    name = f"room {room}" + (" (start)" if room == START else " (treasure)" if room == TREASURE else "")
    box = f'x="{x}" y="{y}" width="{ROOM[0]}" height="{ROOM[1]}" rx="7"'
    middle = x + ROOM[0] / 2
    state, style, words, baseline, times = "unseen", "", f"{name}: never entered", y + 40, ""
    if visit is not None:
        state, style, words, baseline = "seen", f' style="{shade.style(visit)}"', visit.words(name), y + 34
        times = f'<text class="times" x="{middle}" y="{y + 54}" text-anchor="middle">{_short(visit.times)}</text>'
    return (
        f'<g class="room {state}" data-room="{room}" tabindex="0"{style}><title>{html.escape(words)}</title>'
        f'<rect {box}/><text x="{middle}" y="{baseline}" text-anchor="middle">{room}</text>{times}</g>'
    )


def grid(found: dict[int, Visit]) -> str:
    """The visited cells of a grid."""
    shade = Shade(found)
    xs, ys = [p % 256 for p in found], [p // 256 for p in found]
    left, top = min(xs), min(ys)
    columns, rows = max(xs) - left + 1, max(ys) - top + 1
    cells = [
        f'<g class="room seen" tabindex="0" style="{shade.style(visit)}">'
        f"<title>{html.escape(visit.words(f'cell ({place % 256}, {place // 256})'))}</title>"
        f'<rect x="{place % 256 - left}" y="{place // 256 - top}" width="0.96" height="0.96"/></g>'
        for place, visit in sorted(found.items())
    ]
    return (
        f"<h4>{len(found):,} cells visited</h4>"
        f'<svg class="map cells" viewBox="-0.1 -0.1 {columns + 0.2} {rows + 0.2}" role="img" '
        f'aria-label="visited cells" '
        f'style="max-width:{max(160, 22 * columns)}px">{"".join(cells)}</svg>{shade.legend()}'
    )


def room_list(found: dict[int, Visit]) -> str:
    """Rooms in the order in which they were found."""
    shade = Shade(found)
    chips = [
        f'<li class="room seen" tabindex="0" style="{shade.style(visit)}" '
        f'title="{html.escape(visit.words(f"room {place}"), quote=True)}">{place}'
        f"<small>{_short(visit.times)}</small></li>"
        for place, visit in sorted(found.items(), key=lambda item: (item[1].first, item[0]))
    ]
    return f'<h4>{len(found)} rooms entered</h4><ol class="map chips">{"".join(chips)}</ol>{shade.legend()}'


class Shade:
    """Colours of a map: time of first entry on a square-root scale, number of entries on a logarithmic one."""

    def __init__(self, found: dict[int, Visit]):
        self.last = max((v.first for v in found.values()), default=1)
        self.most = max((v.times for v in found.values()), default=1)

    def style(self, visit: Visit) -> str:
        when = ramp(WHEN, math.sqrt(visit.first / max(self.last, 1)))
        often = ramp(OFTEN, math.log1p(visit.times) / math.log1p(self.most))
        return f"--when:{_css(when)};--when-ink:{_ink(when)};--often:{_css(often)};--often-ink:{_ink(often)}"

    def legend(self) -> str:
        when, often = (", ".join(_css(colour) for colour in colours) for colours in (WHEN, OFTEN))
        return (
            f'<p class="legend when"><span>first entered: early</span>'
            f'<i style="background:linear-gradient(90deg,{when})"></i><span>{count(self.last)} frames</span></p>'
            f'<p class="legend often"><span>entered: once</span>'
            f'<i style="background:linear-gradient(90deg,{often})"></i><span>{self.most:,} times</span></p>'
        )


def ramp(colours: Sequence[tuple[int, int, int]], share: float) -> tuple[int, int, int]:
    """The interpolated colour at `share` (0 to 1) of a list of colours."""
    position, steps = share * (len(colours) - 1), range(len(colours))
    red, green, blue = (round(float(np.interp(position, steps, channel))) for channel in zip(*colours, strict=True))
    return red, green, blue


def _css(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _ink(colour: tuple[int, int, int]) -> str:
    red, green, blue = colour
    return "#111" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"


def _short(times: int) -> str:
    if times >= 10**6:
        return f"{times / 10**6:.3g}M×"
    return f"{times / 10**3:.3g}k×" if times >= 10**4 else f"{times:,}×"
