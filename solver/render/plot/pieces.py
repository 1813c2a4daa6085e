"""What is painted of a row: its ops, or columns of about half a point where ops are narrower."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ppsolve.models.core.result import ACTION_KINDS
from ppsolve.models.documents.printable import printable
from ppsolve.solver.render.axis import Window
from ppsolve.solver.render.gantt import columns
from ppsolve.solver.render.plot.sheet import width_of
from ppsolve.solver.render.rows import Bar

NARROW = 0.5
"""Points: two dots of a printer of 300 dots per inch; narrower ops cannot be told apart."""

PADDING = 1.5
"""Points that stay free beside a name within an op."""

ENOUGH = 0.8
"""Letters stand before micro-batches where both fit into this share of the forwards and of the
backwards, so that ops look alike; else all of them get their number."""


@dataclass(frozen=True)
class Piece:
    """A stretch of a row in one colour.

    Parameters
    ----------
    start, end : float
        Times.
    bar : Bar
        Whose colour it has; its own op unless ops are narrower than can be told apart.
    """

    start: float
    end: float
    bar: Bar


def pieces_of(bars: Sequence[Bar], window: Window, points: float) -> list[Piece]:
    """Return the stretches of a row, each in one colour.

    Parameters
    ----------
    bars : sequence of Bar
        The ops of the row.
    window : (float, float)
        First and last time.
    points : float
        Width of the row.

    Returns
    -------
    list of Piece
        Ops that take time, cut to the window; or columns, where half of them are narrower than
        `NARROW`.
    """
    first, last = window
    seen = [bar for bar in bars if bar.end > bar.start and bar.end > first and bar.start < last]
    if not seen:
        return []
    typical = median(bar.end - bar.start for bar in seen)
    if typical * points >= NARROW * (last - first):
        return [Piece(max(bar.start, first), min(bar.end, last), bar) for bar in seen]
    return _columns(seen, window, round(points / NARROW))


def _columns(bars: list[Bar], window: Window, count: int) -> list[Piece]:
    first, last = window
    step, at, found = (last - first) / count, 0, []
    for cell in columns(bars, first, last, count):
        if cell.bar is not None:
            found.append(Piece(first + at * step, first + (at + cell.width) * step, cell.bar))
        at += cell.width
    return found


def labels_of(pieces: Sequence[Piece], scale: float, size: float) -> list[str]:
    """Return the texts inside pieces, empty where nothing fits.

    Parameters
    ----------
    pieces : sequence of Piece
        The pieces of all rows.
    scale : float
        Points per unit of time.
    size : float
        Size of letters in points.

    Returns
    -------
    list of str
        Letter and micro-batch, else the micro-batch alone; names of other ops, else their letter.
    """
    rooms = [(piece.end - piece.start) * scale - PADDING for piece in pieces]
    forms = [_forms(piece.bar) for piece in pieces]
    numbered = [place for place, piece in enumerate(pieces) if piece.bar.kind in ACTION_KINDS]
    by_kind = ([n for n in numbered if pieces[n].bar.kind == kind] for kind in ACTION_KINDS)
    fits = all(
        sum(width_of(forms[n][0], size) <= rooms[n] for n in own) >= ENOUGH * len(own)
        for own in by_kind
    )
    for place in numbered if not fits else ():
        forms[place] = forms[place][1:]
    return [_longest(form, room, size) for form, room in zip(forms, rooms, strict=True)]


def _forms(bar: Bar) -> tuple[str, ...]:
    """Return the texts for an op, the longest first."""
    label, letter = printable(bar.label), printable(bar.letter)
    if bar.kind in ACTION_KINDS:
        return label, label.removeprefix(letter)
    return label, bar.short, letter


def _longest(forms: Iterable[str], room: float, size: float) -> str:
    return next((text for text in forms if text and width_of(text, size) <= room), "")
