"""How pictures paint the ops of a row: stretches of one colour, and the texts inside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ppsolve.models.core.result import ACTION_KINDS
from ppsolve.models.documents.printable import printable
from ppsolve.solver.views.chart import Bar, Window, columns


@dataclass(frozen=True)
class PieceParams:
    """How pages and pictures paint ops, in points."""

    narrow: float = 0.5  # two dots of a printer; narrower ops cannot be told apart
    padding: float = 1.5  # stays free beside a name within an op
    enough: float = 0.8  # share of forwards and of backwards that must have room for letters
    letter: float = 0.64  # width of a digit of DejaVu Sans in multiples of its size


PIECES = PieceParams()


@dataclass(frozen=True)
class Piece:
    """A stretch of a row in the colour of one bar: its own op unless ops are too narrow."""

    start: float
    end: float
    bar: Bar


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is in points, rather too large than too small.

    Parameters
    ----------
    text : str
    size : float
        Size of its letters in points.

    Returns
    -------
    float
    """
    return len(text) * size * PIECES.letter


def pieces_of(bars: Sequence[Bar], window: Window, points: float) -> list[Piece]:
    """Return the stretches of a row, each in one colour.

    Parameters
    ----------
    bars : sequence of Bar
    window : (float, float)
    points : float
        Width of the row.

    Returns
    -------
    list of Piece
        Ops that take time, cut to the window; or columns, where half of them are too narrow.
    """
    first, last = window
    seen = [bar for bar in bars if bar.end > bar.start and bar.end > first and bar.start < last]
    if not seen:
        return []
    typical = median(bar.end - bar.start for bar in seen)
    if typical * points >= PIECES.narrow * (last - first):
        return [Piece(max(bar.start, first), min(bar.end, last), bar) for bar in seen]
    count = round(points / PIECES.narrow)
    step, at, found = (last - first) / count, 0, []
    for run in columns(seen, first, last, count):
        if run.bar is not None:
            found.append(Piece(first + at * step, first + (at + run.width) * step, run.bar))
        at += run.width
    return found


def labels_of(pieces: Sequence[Piece], scale: float, size: float) -> list[str]:
    """Return the texts inside pieces, empty where nothing fits.

    Letters stand before micro-batches where both fit into most of the forwards and of the
    backwards, so that ops look alike; else all of them get their number.

    Parameters
    ----------
    pieces : sequence of Piece
    scale : float
        Points per unit of time.
    size : float
        Size of letters in points.

    Returns
    -------
    list of str
        Letter and micro-batch, else the micro-batch alone; names of other ops, else their letter.
    """
    rooms = [(piece.end - piece.start) * scale - PIECES.padding for piece in pieces]
    forms = [_forms(piece.bar) for piece in pieces]
    numbered = [place for place, piece in enumerate(pieces) if piece.bar.kind in ACTION_KINDS]
    by_kind = ([n for n in numbered if pieces[n].bar.kind == kind] for kind in ACTION_KINDS)
    fits = all(
        sum(text_width(forms[n][0], size) <= rooms[n] for n in own) >= PIECES.enough * len(own)
        for own in by_kind
    )
    for place in numbered if not fits else ():
        forms[place] = forms[place][1:]
    return [
        next((text for text in form if text and text_width(text, size) <= room), "")
        for form, room in zip(forms, rooms, strict=True)
    ]


def _forms(bar: Bar) -> tuple[str, ...]:
    label, letter = printable(bar.label), printable(bar.letter)
    if bar.kind in ACTION_KINDS:
        return label, label.removeprefix(letter)
    return label, bar.short, letter
