"""The figures of one schedule: its chart with amounts below it, or the amounts alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.printable import printable
from ppsolve.solver.render.axis import Window
from ppsolve.solver.render.curves import AmountCurve
from ppsolve.solver.render.drawings import Amount, Drawn
from ppsolve.solver.render.figures import compact, figure
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.looks import look_of
from ppsolve.solver.render.palette import GREY, SKY, VERMILION, colour_of, darker, ink_on, lightened
from ppsolve.solver.render.plot.pieces import ENOUGH, Piece, labels_of, pieces_of
from ppsolve.solver.render.plot.sheet import (
    ABOVE,
    AXIS,
    EDGE,
    FAINT,
    INK,
    LEGEND_LINE,
    LINE,
    NAME_SIZE,
    PALE,
    POINTS,
    PROSE,
    Sheet,
    legend_lines,
    named,
    width_of,
)
from ppsolve.solver.render.rows import has_chunks, kinds_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

FILLED = 0.86
"""Share of a strip's height that its largest amount or its cap takes; the rest parts strips."""

SHORT, DIGITS = 10_000, 3
"""Larger amounts, such as bytes, are written in four characters; others in three digits."""

FILL = lightened(SKY, 0.35)
CAP: dict[str, Any] = {"color": VERMILION, "linewidth": 0.8, "linestyle": (0, (3, 1.5))}


def peak_of(amount: Amount) -> str:
    """Return the largest amount in a few digits, with its cap where it has one: ``7.5 of 8``."""
    texts = (value for value in (amount.curve.most, amount.cap) if value is not None)
    return " of ".join(compact(v) if v >= SHORT else figure(v, DIGITS) for v in texts)


def amount_legend(amounts: Sequence[Amount]) -> list[Artist]:
    """Return the entries of a legend for what is drawn of amounts."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found: list[Artist] = []
    capped = [amount for amount in amounts if amount.cap is not None]
    if amounts:
        label = "memory in use" if capped else "amount; full height at the right end"
        found.append(Patch(facecolor=FILL, linewidth=0, label=label))
    if capped:
        found.append(Line2D([], [], label="capacity", **CAP))
    return found


def draw_amounts(
    axes: Axes, amounts: Sequence[Amount], window: Window, row: float, points: float
) -> None:
    """Draw strips one below the other, each with its name and its peak.

    Parameters
    ----------
    axes : Axes
        The panel.
    amounts : sequence of Amount
        What is drawn.
    window : (float, float)
        First and last time.
    row : float
        Height of a strip in points.
    points : float
        Width of the panel.
    """
    for place, amount in enumerate(amounts):
        bottom = len(amounts) - 1 - place
        _draw_amount(axes, amount, window, bottom, points)
    write_beside(axes, [peak_of(amount) for amount in amounts], row, FILLED / 2)
    set_rows(axes, [named(amount.curve.name) for amount in amounts], row, FILLED / 2)
    axes.set_xlim(window)
    axes.set_ylim(-0.1, len(amounts))


def _draw_amount(axes: Axes, amount: Amount, window: Window, bottom: int, points: float) -> None:
    steps = _steps(amount.curve, window, round(points))
    share = FILLED / amount.height
    times, tops = [time for time, _ in steps], [bottom + height * share for _, height in steps]
    axes.fill_between(times, tops, bottom, step="post", color=FILL, linewidth=0)
    if amount.cap is not None:
        level = bottom + amount.cap * share
        axes.plot(window, [level, level], **CAP)


def _steps(curve: AmountCurve, window: Window, most: int) -> list[tuple[float, float]]:
    """Return the amounts from each time on, to the end of the window; columns of many steps."""
    first, last = window
    if len(curve.points) <= most:
        inside = [(time, height) for time, height in curve.points if first < time < last]
        before = [height for time, height in curve.points if time <= first]
        steps = [(first, before[-1] if before else 0.0), *inside]
    else:
        heights = curve.columns(window, most)
        step = (last - first) / most
        steps = [(first + place * step, height) for place, height in enumerate(heights)]
    return [*steps, (last, steps[-1][1])]


def write_beside(axes: Axes, texts: Sequence[str], row: float, middle: float) -> None:
    """Write texts at the right end of rows.

    Parameters
    ----------
    axes : Axes
        The panel, its rows as in `set_rows`.
    texts : sequence of str
        A text for each row.
    row : float
        Height of a row in points.
    middle : float
        Where in a row its text stands, 0 to 1.
    """
    for place, text in _written(texts, row):
        axes.annotate(
            text, (1, len(texts) - 1 - place + middle), (3, 0), ("axes fraction", "data"),
            "offset points", va="center", color=FAINT, fontsize=NAME_SIZE,
        )  # fmt: skip


def _written(texts: Sequence[str], row: float) -> list[tuple[int, str]]:
    """Return the texts of all rows, or of every second, third ... where rows are narrow."""
    every = math.ceil(NAME_SIZE / row)
    return list(enumerate(texts))[::every]


def set_rows(axes: Axes, names: Sequence[str], row: float, middle: float) -> None:
    """Write the names of rows beside them, the first one at the top; of narrow rows only some.

    Parameters
    ----------
    axes : Axes
        The panel; rows are 1 apart and the last one begins at 0.
    names : sequence of str
        The names.
    row : float
        Height of a row in points.
    middle : float
        Where in a row its name stands, 0 to 1.
    """
    shown = _written(names, row)
    axes.set_yticks(
        [len(names) - 1 - place + middle for place, _ in shown], [name for _, name in shown]
    )
    axes.tick_params(axis="y", length=0, labelsize=NAME_SIZE)


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


ROW, STRIP, TALL_STRIP = 14.0, 11.0, 26.0
"""Heights of a row, of a strip below a chart and of one without a chart, in points."""

MOST_ROWS, MOST_BELOW = 210.0, 120.0
"""Points: rows and strips of many devices get narrower, so that text stays on the page."""

GAP = 7.0
"""Points between panels."""

LEAST_ROOM = 60.0
"""Points of a chart's width, however long names beside it are."""


@dataclass(frozen=True)
class _FigureLayout:
    """Where the parts of a figure are, in points from its upper edge.

    Parameters
    ----------
    chart : Gantt
        The rows; empty if only amounts are drawn.
    amounts : sequence of Amount
        The strips.
    has_rows : bool
        Whether the rows are drawn.
    has_title : bool
        Whether there are lines above.
    width : float
        Width of the figure.
    """

    chart: Gantt
    amounts: Sequence[Amount]
    has_rows: bool
    has_title: bool
    width: float

    @cached_property
    def left(self) -> float:
        """Room for the names of rows."""
        names = [row.name for row in self.chart.rows if self.has_rows]
        names += [amount.curve.name for amount in self.amounts]
        widest = max((width_of(named(name)) * PROSE for name in names), default=0)
        return min(widest + 8, self.width - LEAST_ROOM - self.right)

    @cached_property
    def right(self) -> float:
        """Room for shares and peaks."""
        peaks = [peak_of(amount) for amount in self.amounts]
        return max(width_of(text) for text in [*peaks, "100%"]) * PROSE + 10

    @cached_property
    def row(self) -> float:
        """Height of a row."""
        return min(ROW, MOST_ROWS / max(len(self.chart.rows), 1))

    @cached_property
    def strip(self) -> float:
        """Height of a strip."""
        usual, most = (STRIP, MOST_BELOW) if self.has_rows else (TALL_STRIP, MOST_ROWS)
        return min(usual, most / max(len(self.amounts), 1))

    @cached_property
    def top(self) -> float:
        """Where the first panel begins."""
        return EDGE + (2 * LINE if self.has_title else 0) + ABOVE

    @cached_property
    def rows(self) -> float:
        """Height of all rows."""
        return self.row * len(self.chart.rows) if self.has_rows else 0.0

    @cached_property
    def strips(self) -> float:
        """Height of all strips."""
        return self.strip * len(self.amounts)

    @cached_property
    def foot(self) -> float:
        """Where the axis of time is."""
        gap = GAP if self.rows and self.strips else 0
        return self.top + self.rows + gap + self.strips


def schedule_figure(
    drawn: Drawn, title: str | None, inches: float, *, has_rows: bool = True
) -> Figure:
    """Return the figure of a schedule.

    Parameters
    ----------
    drawn : Drawn
        The schedule.
    title : str, optional
        First line, by default the instance and the method; empty for no lines above.
    inches : float
        Width of the figure.
    has_rows : bool
        Draw the rows of devices; else the amounts over time alone.

    Returns
    -------
    Figure
        The chart, with amounts over time below it.

    Raises
    ------
    InputError
        There is nothing to draw.
    """
    chart = drawn.chart
    amounts = drawn.amounts(chart)
    _refuse_nothing(chart, amounts, has_rows=has_rows)
    layout = _FigureLayout(chart, amounts, has_rows, title != "", inches * POINTS)
    legend = legend_of(chart) if has_rows else amount_legend(amounts)
    if has_rows:
        legend += amount_legend(amounts)
    room = layout.width - layout.left - layout.right
    bottom = layout.foot + AXIS
    height = bottom + LEGEND_LINE * len(legend_lines(legend, room)) + EDGE
    sheet = Sheet.of(inches, height, layout.left, layout.right)
    sheet.title(drawn.shown.title if title is None else title, *drawn.captions)
    lowest = _draw_panels(sheet, layout, drawn.bound)
    set_times(lowest, chart.unit, sheet.room)
    sheet.legend(legend, bottom)
    return sheet.figure


def _refuse_nothing(chart: Gantt, amounts: Sequence[Amount], *, has_rows: bool) -> None:
    first, last = chart.window
    if not last > first or not chart.rows:
        raise InputError("there is nothing to draw: no op takes time", field="schedule")
    if not has_rows and not amounts:
        raise InputError(
            "there is no memory to draw; it needs an instance with a capacity", field="memory"
        )


def _draw_panels(sheet: Sheet, layout: _FigureLayout, bound: float | None) -> Axes:
    """Draw rows and strips and return the lower panel."""
    chart, panels = layout.chart, []
    if layout.has_rows:
        axes = sheet.panel(layout.top, layout.rows)
        draw_gantt(axes, chart, layout.row, sheet.room)
        write_beside(axes, busy_shares(chart), layout.row, 0.5)
        draw_iterations(axes, chart, sheet.room)
        if bound is not None:
            draw_bound(axes, bound, chart.window)
        panels.append(axes)
    if layout.amounts:
        axes = sheet.panel(layout.foot - layout.strips, layout.strips)
        draw_amounts(axes, layout.amounts, chart.window, layout.strip, sheet.room)
        panels.append(axes)
    for axes in panels[:-1]:
        axes.tick_params(axis="x", bottom=False, labelbottom=False)
    return panels[-1]
