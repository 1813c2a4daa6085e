"""A chart of a schedule: a row per device, ops in colours, the proven bound as a line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.printable import printable
from ppsolve.solver.render.figures import figure
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.looks import look_of
from ppsolve.solver.render.palette import GREY, colour_of, darker, ink_on
from ppsolve.solver.render.plot.amounts import set_rows
from ppsolve.solver.render.plot.pieces import ENOUGH, Piece, labels_of, pieces_of
from ppsolve.solver.render.plot.sheet import FAINT, INK, NAME_SIZE, PALE, named, width_of
from ppsolve.solver.render.rows import has_chunks, kinds_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.path import Path

BAR = 0.88
"""Share of a row's height that its ops take."""

LEAST_LETTER = 4.0
"""Points: smaller letters cannot be read in print, so that rows with less room get none."""

PARTED = 3.0
"""Points: ops of this width are parted by white lines, which narrower ones would drown in."""

MOST_TICKS = 8
"""Steps of the axis of time at most, as few as matplotlib makes of usual figures."""

HATCH, SHADOW = "/////", "#00000073"

Box = tuple[float, float, float, float]
"""Left, bottom, right and top."""


def draw_gantt(axes: Axes, chart: Gantt, row: float, points: float) -> None:
    """Draw the rows of a chart.

    Parameters
    ----------
    axes : Axes
        The panel.
    chart : Gantt
        What is drawn.
    row : float
        Height of a row in points.
    points : float
        Width of the panel.
    """
    count, scale = len(chart.rows), points / (chart.window[1] - chart.window[0])
    pieces: list[Piece] = []
    bottoms: list[float] = []
    for place, each in enumerate(chart.rows):
        bottom = count - 1 - place + (1 - BAR) / 2
        _draw_idle(axes, chart, each.end, bottom)
        own = pieces_of(each.bars, chart.window, points)
        pieces += own
        bottoms += [bottom] * len(own)
    _draw_pieces(axes, pieces, bottoms, scale)
    _write_names(axes, pieces, bottoms, scale, min(NAME_SIZE, 0.62 * row))
    for start in chart.iterations[1:]:
        axes.axvline(start, color=INK, linewidth=0.5)
    set_rows(axes, [named(each.name) for each in chart.rows], row, 0.5)
    axes.set_xlim(chart.window)
    axes.set_ylim(0, count)


def _draw_idle(axes: Axes, chart: Gantt, end: float | None, bottom: float) -> None:
    """Paint the ground of a row as far as anything is known of it."""
    first, last = chart.window
    known = last if end is None else min(end, last)
    if known > first:
        axes.broken_barh([(first, known - first)], (bottom, BAR), color=PALE, linewidth=0)


def _draw_pieces(
    axes: Axes, pieces: Sequence[Piece], bottoms: Sequence[float], scale: float
) -> None:
    """Paint all ops of one look as one path, which keeps files small."""
    from matplotlib.patches import PathPatch

    looks: dict[tuple[str, int, bool], list[Box]] = defaultdict(list)
    for piece, bottom in zip(pieces, bottoms, strict=True):
        box = (piece.start, bottom, piece.end, bottom + BAR)
        is_parted = (piece.end - piece.start) * scale >= PARTED
        looks[piece.bar.kind, piece.bar.shade % 2, is_parted].append(box)
    for (kind, shade, is_parted), boxes in looks.items():
        # `add_patch` would look at every edge for the limits of the axes, which are set anyway.
        axes.add_artist(PathPatch(_path(boxes), **_face(kind, shade, 0.5 * is_parted)))


def _path(boxes: Sequence[Box]) -> Path:
    from matplotlib.path import Path

    corners = [
        [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
        for left, bottom, right, top in boxes
    ]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path([corner for box in corners for corner in box], codes * len(boxes))


def _face(kind: str, shade: int, edge: float) -> dict[str, Any]:
    """Return colours and lines for ops of a kind."""
    face, hatched = _fill(kind, shade)
    if hatched:
        # Hatches have the colour of edges before matplotlib 3.11.
        return {"facecolor": face, "edgecolor": SHADOW, "linewidth": 0.6 * edge, "hatch": HATCH}
    return {"facecolor": face, "edgecolor": "#ffffff", "linewidth": edge}


def _fill(kind: str, shade: int) -> tuple[str, bool]:
    colour, hatched = colour_of(kind)
    return darker(colour) if shade % 2 else colour, hatched


def _write_names(
    axes: Axes, pieces: Sequence[Piece], bottoms: Sequence[float], scale: float, size: float
) -> None:
    if size < LEAST_LETTER:
        return
    size, texts = _fitting(pieces, scale, size)
    for piece, bottom, text in zip(pieces, bottoms, texts, strict=True):
        if text:
            colour = ink_on(_fill(piece.bar.kind, piece.bar.shade)[0])
            middle = (piece.start + piece.end) / 2
            axes.text(
                middle, bottom + BAR / 2, text, color=colour, fontsize=size,
                ha="center", va="center_baseline", clip_on=True,
            )  # fmt: skip


def _fitting(pieces: Sequence[Piece], scale: float, size: float) -> tuple[float, list[str]]:
    """Return the largest size of letters in which most ops are named, and the names.

    Where no readable size names most of them, the largest one names those that are wide.
    """
    sizes = (size, 0.85 * size, 0.7 * size)
    found = [(each, labels_of(pieces, scale, each)) for each in sizes if each >= LEAST_LETTER]
    most = (one for one in found if sum(map(bool, one[1])) >= ENOUGH * len(pieces))
    return next(most, found[0])


def draw_bound(axes: Axes, bound: float, window: tuple[float, float]) -> None:
    """Draw the proven bound as a line, named above it.

    Parameters
    ----------
    axes : Axes
        The panel of the chart.
    bound : float
        The time before which no schedule can end.
    window : (float, float)
        First and last time that is drawn.
    """
    if not window[0] < bound <= window[1]:
        return
    axes.axvline(bound, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), clip_on=False)
    axes.annotate(
        "bound", (bound, 1), (0, 1.5), ("data", "axes fraction"), "offset points",
        ha="right" if bound > 0.9 * window[1] else "center", va="bottom", fontsize=NAME_SIZE - 1,
    )  # fmt: skip


def draw_iterations(axes: Axes, chart: Gantt, points: float) -> None:
    """Write the numbers of iterations above a chart, where there is room.

    Parameters
    ----------
    axes : Axes
        The panel of the chart.
    chart : Gantt
        What is drawn.
    points : float
        Width of the panel.
    """
    ends = [*chart.iterations, chart.end]
    scale = points / (chart.window[1] - chart.window[0])
    for number, (start, end) in enumerate(pairwise(ends)):
        left, right = max(start, chart.window[0]), min(end, chart.window[1])
        texts = (f"iteration {number}", str(number))
        text = next((t for t in texts if width_of(t) <= (right - left) * scale), "")
        if len(ends) > 2 and text:
            axes.annotate(
                text, ((left + right) / 2, 1), (0, 1.5), ("data", "axes fraction"),
                "offset points", ha="center", va="bottom", color=FAINT, fontsize=NAME_SIZE - 1,
            )  # fmt: skip


def legend_of(chart: Gantt) -> list[Artist]:
    """Return a patch for each kind of op of a chart, then those for what else is painted."""
    from matplotlib.patches import Patch

    named_kinds: dict[str, str] = {}
    for kind in kinds_of(chart.rows):
        named_kinds.setdefault(look_of(kind).words, kind)
    found: list[Artist] = [
        Patch(label=printable(words), **_face(kind, 0, 0.0))
        for words, kind in named_kinds.items()
        if words
    ]
    if has_chunks(chart.rows):
        found.append(
            Patch(facecolor=darker(GREY), linewidth=0, label=f"dark: {chart.small_letters}")
        )
    return [*found, Patch(facecolor=PALE, linewidth=0, label=chart.idle)]


def busy_shares(chart: Gantt) -> list[str]:
    """Return the busy share of each device as a text; an empty one for links."""
    ends = [row.end or chart.end for row in chart.rows]
    return [
        f"{row.busy / end:.0%}" if row.is_device else ""
        for row, end in zip(chart.rows, ends, strict=True)
    ]


def set_times(axes: Axes, unit: str, points: float) -> None:
    """Name the axis of time and write round times below it.

    Parameters
    ----------
    axes : Axes
        The lowest panel.
    unit : str
        Unit of times.
    points : float
        Width of the panel.
    """
    from matplotlib.ticker import MaxNLocator

    room = width_of(f"{axes.get_xlim()[1]:,.0f}") + 2 * NAME_SIZE
    steps = max(1, min(MOST_TICKS, int(points / room)))
    axes.xaxis.set_major_locator(MaxNLocator(steps, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(lambda time, _: figure(float(f"{time:.12g}")))
    axes.set_xlabel(f"time ({printable(unit)})", labelpad=1)
