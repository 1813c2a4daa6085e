"""A chart of a schedule as static SVG: no script, no style sheet, bounded in size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from ppsolve.models.documents.printable import printable
from ppsolve.solver.render.axis import round_step
from ppsolve.solver.render.figures import figure, shorten
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.looks import look_of
from ppsolve.solver.render.page.tables import text
from ppsolve.solver.render.palette import GREY, colour_of, darker, ink_on
from ppsolve.solver.render.plot.pieces import NARROW, Piece, labels_of, pieces_of
from ppsolve.solver.render.rows import has_chunks, kinds_of

WIDTH, ROW, LETTER = 860, 18, 10
"""Pixels: width of a notebook's cell on a small screen, height of a row, size of letters."""

MOST_ROWS = 64
"""Rows that are drawn; a note says how many more there are."""

MOST_PIECES = 12_000
"""Pieces of all rows at most: about 300 kB, so that notebooks with many results stay small."""

NAME_LETTERS, LETTER_WIDTH = 16, 6.2
SHARE_ROOM, LINE = 40, 16
MOST_TICKS = 8


@dataclass(frozen=True)
class _Rectangle:
    """A rectangle of a look, in pixels."""

    left: float
    top: int
    width: float

    def __str__(self) -> str:
        height = ROW - 2
        return f"M{self.left:.4g} {self.top}h{self.width:.3g}v{height}h{-self.width:.3g}z"


def svg_of(chart: Gantt, bound: float | None = None) -> str:
    """Return a chart as an SVG element.

    Parameters
    ----------
    chart : Gantt
        What is drawn.
    bound : float, optional
        The proven bound, where it is one of the end of the schedule.

    Returns
    -------
    str
        The element; texts have the colour of the text around it.
    """
    first, last = chart.window
    rows = chart.rows[:MOST_ROWS]
    if not rows or not last > first:
        return ""
    left = 10 + LETTER_WIDTH * min(max(len(printable(row.name)) for row in rows), NAME_LETTERS)
    room = WIDTH - left - SHARE_ROOM
    scale = room / (last - first)
    columns = min(room, MOST_PIECES / len(rows))
    pieces = [pieces_of(row.bars, chart.window, columns * NARROW) for row in rows]
    body = [
        *_grounds(chart, left, room),
        *_boxes(pieces, first, left, scale),
        *_names(pieces, first, left, scale),
        *_beside(chart, left),
        *_bound(bound, chart, left, scale),
    ]
    foot = len(rows) * ROW + 2
    body += [*_axis(chart, left, room, foot), *_legend(chart, foot + 2 * LINE)]
    height = foot + LINE * (2 + len(_legend_lines(chart)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'style="max-width:100%" font-family="sans-serif" font-size="{LETTER}" '
        f'fill="currentColor" role="img">{"".join(body)}</svg>'
    )


def _grounds(chart: Gantt, left: float, room: float) -> Iterator[str]:
    first, last = chart.window
    for place, row in enumerate(chart.rows[:MOST_ROWS]):
        end = last if row.end is None else min(max(row.end, first), last)
        width = room * (end - first) / (last - first)
        box = f'y="{place * ROW}" width="{width:.4g}" height="{ROW - 2}"'
        yield f'<rect x="{left:.4g}" {box} fill="#808080" fill-opacity=".15"/>'


def _boxes(
    pieces: Sequence[Sequence[Piece]], first: float, left: float, scale: float
) -> Iterator[str]:
    """Yield a path for all ops of one look."""
    found: dict[tuple[str, bool], list[_Rectangle]] = defaultdict(list)
    for place, row in enumerate(pieces):
        for piece in row:
            width = (piece.end - piece.start) * scale
            gap = 0.5 if width > 3 else 0.0
            box = _Rectangle(
                left + (piece.start - first) * scale, place * ROW, max(width - gap, 0.2)
            )
            found[_fill(piece)].append(box)
    for (colour, hatched), boxes in found.items():
        path = "".join(map(str, boxes))
        yield f'<path d="{path}" fill="{colour}"/>'
        if hatched:
            name = f"h{crc32(path.encode()):08x}"
            yield f'{_pattern(name)}<path d="{path}" fill="url(#{name})"/>'


def _pattern(name: str) -> str:
    lines = '<path d="M-1 5L5 -1M1 7L7 1" stroke="#000" stroke-opacity=".45"/>'
    size = 'width="6" height="6" patternUnits="userSpaceOnUse"'
    return f'<defs><pattern id="{name}" {size}>{lines}</pattern></defs>'


def _fill(piece: Piece) -> tuple[str, bool]:
    colour, hatched = colour_of(piece.bar.kind)
    return (darker(colour) if piece.bar.shade % 2 else colour), hatched


def _names(
    pieces: Sequence[Sequence[Piece]], first: float, left: float, scale: float
) -> Iterator[str]:
    every = [(place, piece) for place, row in enumerate(pieces) for piece in row]
    labels = labels_of([piece for _, piece in every], scale, LETTER)
    by_ink: dict[str, list[str]] = defaultdict(list)
    for (place, piece), label in zip(every, labels, strict=True):
        if label:
            x = left + ((piece.start + piece.end) / 2 - first) * scale
            spot = f'x="{x:.4g}" y="{place * ROW + 12}"'
            by_ink[ink_on(_fill(piece)[0])].append(f"<text {spot}>{text(label)}</text>")
    for ink, texts in by_ink.items():
        yield f'<g fill="{ink}" text-anchor="middle">{"".join(texts)}</g>'


def _beside(chart: Gantt, left: float) -> Iterator[str]:
    """Yield the names of rows and how busy they are."""
    for place, row in enumerate(chart.rows[:MOST_ROWS]):
        y, end = place * ROW + 12, row.end or chart.end
        name = text(shorten(printable(row.name), NAME_LETTERS))
        yield f'<text x="{left - 5:.4g}" y="{y}" text-anchor="end">{name}</text>'
        if row.is_device:
            share = f"{row.busy / end:.0%}"
            yield f'<text x="{WIDTH - SHARE_ROOM + 5}" y="{y}" opacity=".7">{share}</text>'


def _bound(bound: float | None, chart: Gantt, left: float, scale: float) -> Iterator[str]:
    first, last = chart.window
    if bound is not None and first < bound <= last:
        x, y = left + (bound - first) * scale, len(chart.rows[:MOST_ROWS]) * ROW
        line = f'x1="{x:.5g}" x2="{x:.5g}" y1="0" y2="{y}"'
        title = f"<title>lower bound {figure(bound)} {text(chart.unit)}</title>"
        yield f'<line {line} stroke="currentColor" stroke-dasharray="5 3">{title}</line>'


def _axis(chart: Gantt, left: float, room: float, foot: int) -> Iterator[str]:
    """Yield round times below the rows, the unit behind the last one."""
    first, last = chart.window
    step = round_step(last - first, MOST_TICKS)
    places = range(math.ceil(first / step), math.floor(last / step) + 1) if step else range(0)
    for place in places:
        time = float(f"{place * step:.12g}")
        unit = f" {text(chart.unit)}" if place == places[-1] else ""
        x = left + room * (time - first) / (last - first)
        yield f'<text x="{x:.5g}" y="{foot + 12}" text-anchor="middle">{figure(time)}{unit}</text>'


def _legend(chart: Gantt, top: int) -> Iterator[str]:
    for place, line in enumerate(_legend_lines(chart)):
        x, y = 10.0, top + place * LINE
        for words, colour in line:
            if colour:
                yield f'<rect x="{x:.4g}" y="{y - 9}" width="12" height="10" fill="{colour}"/>'
            yield f'<text x="{x + 16:.4g}" y="{y}">{text(words)}</text>'
            x += _room(words)


def _room(words: str) -> float:
    return 30 + LETTER_WIDTH * len(words)


def _legend_lines(chart: Gantt) -> list[list[tuple[str, str]]]:
    """Return words and colours of kinds, as many in a line as fit; the last one counts rows."""
    words: dict[str, str] = {}
    for kind in kinds_of(chart.rows):
        words.setdefault(printable(look_of(kind).words), colour_of(kind)[0])
    items = [(word, colour) for word, colour in words.items() if word]
    if has_chunks(chart.rows):
        items.append((f"dark: {chart.small_letters}", darker(GREY)))
    hidden = len(chart.rows) - MOST_ROWS
    if hidden > 0:
        items.append((f"{hidden} more rows are not drawn", ""))
    lines: list[list[tuple[str, str]]] = []
    left = 0.0
    for item in items:
        if not lines or _room(item[0]) > left:
            lines.append([])
            left = WIDTH - 10.0
        lines[-1].append(item)
        left -= _room(item[0])
    return lines
