"""Maps of the places that agents visited: the pyramid of Montezuma's Revenge, rooms of Pitfall!, cells of a grid.

Every place has two colours, by the time of its first entry and by the number of entries; a switch on the page selects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rnd.config.presets import is_minigrid
from rnd.foundation.text import count
from rnd.report.layout import Layout, layout_of
from rnd.report.markup import Html, data_url, markup
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


def map_of(group: Group) -> Html:
    """The map for the game of the group; empty where there is nothing to draw."""
    env_id, found = group.env_id, visits(group)
    if "MontezumaRevenge" in env_id:  # one pyramid per level; a higher one is drawn if a run has reached it
        return markup("{}", [pyramid(level, found) for level in sorted({0, *(place // 256 for place in found)})])
    if not found:
        return Html()
    return grid(found, layout_of(env_id)) if is_minigrid(env_id) else room_list(found)


def pyramid(level: int, found: dict[int, Visit]) -> Html:
    """The 24 rooms of a level."""
    shade = Shade(found)
    width, height = 9 * (ROOM[0] + GAP) - GAP, 4 * (ROOM[1] + GAP) - GAP
    drawn, seen = [], 0
    for row, rooms in enumerate(PYRAMID):
        for column, room in enumerate(rooms):
            x, y = (column + 3 - row) * (ROOM[0] + GAP), row * (ROOM[1] + GAP)
            visit = found.get(level * 256 + room)
            seen += visit is not None
            drawn.append(_room(room, x, y, visit, shade))
    return markup(
        '<h5>Level {level}: {seen} of 24 rooms</h5><svg class="map pyramid" viewBox="-1 -1 {width} {height}" '
        'role="img" aria-label="rooms of level {level}">{rooms}</svg>{legend}',
        level=level + 1,
        seen=seen,
        width=width + 2,
        height=height + 2,
        rooms=drawn,
        legend=shade.legend(),
    )


def _room(room: int, x: int, y: int, visit: Visit | None, shade: Shade) -> Html:
    name = f"room {room}" + (" (start)" if room == START else " (treasure)" if room == TREASURE else "")
    middle = x + ROOM[0] / 2
    state, words, baseline, times = "unseen", f"{name}: never entered", y + 40, Html()
    if visit is not None:
        state, words, baseline = f"seen {shade.classes(visit)}", visit.words(name), y + 34
        line = '<text class="times" x="{}" y="{}" text-anchor="middle">{}</text>'
        times = markup(line, middle, y + 54, _short(visit.times))
    return markup(
        '<g class="room {state}" data-room="{room}" tabindex="0"><title>{words}</title>'
        '<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7"/>'
        '<text x="{middle}" y="{baseline}" text-anchor="middle">{room}</text>{times}</g>',
        state=state,
        room=room,
        words=words,
        x=x,
        y=y,
        width=ROOM[0],
        height=ROOM[1],
        middle=middle,
        baseline=baseline,
        times=times,
    )


def grid(found: dict[int, Visit], layout: Layout | None) -> Html:
    """The visited cells of a grid, beside the layout of an episode."""
    shade = Shade(found)
    columns, rows = (layout.columns, layout.rows) if layout else (0, 0)
    columns, rows = max(columns, *(p % 256 + 1 for p in found)), max(rows, *(p // 256 + 1 for p in found))
    cell = min(max(300 // columns, 8), 28)  # pixels
    cells = [
        markup(
            '<g class="room seen {}" tabindex="0"><title>{}</title>'
            '<rect x="{}" y="{}" width="0.96" height="0.96"/></g>',
            shade.classes(visit),
            visit.words(f"cell ({place % 256}, {place // 256})"),
            place % 256,
            place // 256,
        )
        for place, visit in sorted(found.items())
    ]
    image, note = Html(), "All episodes are laid over each other."
    if layout:
        line = '<figure><img class="layout" width="{}" alt="{}" src="{}"><figcaption>one episode</figcaption></figure>'
        words, url = "the layout of one episode", data_url(layout.png, "image/png")
        image = markup(line, cell * layout.columns, words, url)
        note = "The layout is the same in every episode."
        if layout.changes:
            note = (
                "Every episode has another layout, and all are laid over each other: a cell that is coloured was "
                "entered in some episode, and may be a wall in another."
            )
    return markup(
        '<h5>{number:,} cells visited</h5><p class="note">{note}</p><div class="grids"><figure>'
        '<svg class="map cells" width="{width}" viewBox="0 0 {columns} {rows}" role="img" '
        'aria-label="visited cells">{cells}</svg><figcaption>all episodes</figcaption></figure>{image}</div>'
        "{legend}",
        number=len(found),
        note=note,
        width=cell * columns,
        columns=columns,
        rows=rows,
        cells=cells,
        image=image,
        legend=shade.legend(),
    )


def room_list(found: dict[int, Visit]) -> Html:
    """Rooms in the order in which they were found."""
    shade = Shade(found)
    chips = [
        markup(
            '<li class="room seen {}" tabindex="0" title="{}">{}<small>{}</small></li>',
            shade.classes(visit),
            visit.words(f"room {place}"),
            place,
            _short(visit.times),
        )
        for place, visit in sorted(found.items(), key=lambda item: (item[1].first, item[0]))
    ]
    line = '<h5>{} rooms entered</h5><ol class="map chips">{}</ol>{}'
    return markup(line, len(found), chips, shade.legend())


SHADES = 32
"""Steps of a scale of colours."""


class Shade:
    """Colours of a map: time of first entry on a square-root scale, number of entries on a logarithmic one."""

    def __init__(self, found: dict[int, Visit]):
        self.last = max((v.first for v in found.values()), default=1)
        self.most = max((v.times for v in found.values()), default=1)

    def classes(self, visit: Visit) -> str:
        """The names of a place's two colours in `style`."""
        when = math.sqrt(visit.first / max(self.last, 1))
        often = math.log1p(visit.times) / math.log1p(self.most)
        return f"w{round(when * SHADES)} o{round(often * SHADES)}"

    def legend(self) -> Html:
        return markup(
            '<p class="legend when"><span>first entered: early</span><i></i><span>{} frames</span></p>'
            '<p class="legend often"><span>entered: once</span><i></i><span>{:,} times</span></p>',
            count(self.last),
            self.most,
        )


def style() -> str:
    """The colours of maps as CSS."""
    rules = []
    for name, letter, colours in (("when", "w", WHEN), ("often", "o", OFTEN)):
        scale = ", ".join(_css(colour) for colour in colours)
        rules.append(f".legend.{name} i {{ background: linear-gradient(90deg, {scale}) }}")
        for step in range(SHADES + 1):
            colour = ramp(colours, step / SHADES)
            rules.append(f".{letter}{step} {{ --{name}: {_css(colour)}; --{name}-ink: {_ink(colour)} }}")
    return "\n".join(rules)


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
