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
from ppsolve.solver.views.chart import AmountCurve, Chart, Window, has_chunks
from ppsolve.solver.views.colours import (
    GREY,
    SKY,
    VERMILION,
    Look,
    darker,
    ink_on,
    lightened,
    look_of,
)
from ppsolve.solver.views.drawings import Drawn
from ppsolve.solver.views.figures import compact, figure
from ppsolve.solver.views.pieces import PIECES, Piece, labels_of, pieces_of
from ppsolve.solver.views.plot.sheet import (
    FAINT,
    INK,
    PALE,
    SHEET,
    Sheet,
    legend_lines,
    named,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

FILL, HATCH, SHADOW = lightened(SKY, 0.35), "/////", "#00000073"
CAP: dict[str, Any] = {"color": VERMILION, "linewidth": 0.8, "linestyle": (0, (3, 1.5))}
_ABOVE: dict[str, Any] = {
    "xytext": (0, 1.5), "xycoords": ("data", "axes fraction"), "textcoords": "offset points",
    "va": "bottom", "fontsize": SHEET.name - 1,
}  # fmt: skip


@dataclass(frozen=True)
class ScheduleLayout:
    """Sizes in points where nothing else is said."""

    row: float = 14.0
    strip: float = 11.0  # of an amount below a chart
    tall_strip: float = 26.0  # of an amount without a chart
    most_rows: float = 210.0  # rows of many devices get narrower, so that text stays on the page
    most_below: float = 120.0
    gap: float = 7.0  # between panels
    least_room: float = 60.0  # of a chart's width, however long names beside it are
    least_letter: float = 4.0  # smaller letters cannot be read in print
    parted: float = 3.0  # ops of this width are parted by white lines
    bar: float = 0.88  # share of a row's height that its ops take
    filled: float = 0.86  # share of a strip's height that its largest amount or cap takes
    most_ticks: int = 8


LAYOUT = ScheduleLayout()


def peak_of(curve: AmountCurve) -> str:
    """Return the largest amount in a few digits, with its cap where it has one: ``7.5 of 8``."""
    texts = (value for value in (curve.most, curve.cap) if value is not None)
    # Larger amounts, such as bytes, are written in four characters; others in three digits.
    return " of ".join(compact(value) if value >= 10_000 else figure(value, 3) for value in texts)


def amount_legend(curves: Sequence[AmountCurve]) -> list[Artist]:
    """Return the entries of a legend for what is drawn of amounts."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found: list[Artist] = []
    has_cap = any(curve.cap is not None for curve in curves)
    if curves:
        label = "memory in use" if has_cap else "amount; full height at the right end"
        found.append(Patch(facecolor=FILL, linewidth=0, label=label))
    if has_cap:
        found.append(Line2D([], [], label="capacity", **CAP))
    return found


def _draw_amounts(
    axes: Axes, curves: Sequence[AmountCurve], window: Window, row: float, points: float
) -> None:
    for place, curve in enumerate(curves):
        _draw_amount(axes, curve, window, len(curves) - 1 - place, points)
    middle = LAYOUT.filled / 2
    _write_beside(axes, [peak_of(curve) for curve in curves], row, middle)
    set_rows(axes, [named(curve.name) for curve in curves], row, middle)
    axes.set_xlim(window)
    axes.set_ylim(-0.1, len(curves))


def _draw_amount(
    axes: Axes, curve: AmountCurve, window: Window, bottom: int, points: float
) -> None:
    steps = _steps(curve, window, round(points))
    share = LAYOUT.filled / (max(curve.most, curve.cap or 0) or 1.0)
    times, tops = [time for time, _ in steps], [bottom + height * share for _, height in steps]
    axes.fill_between(times, tops, bottom, step="post", color=FILL, linewidth=0)
    if curve.cap is not None:
        level = bottom + curve.cap * share
        axes.plot(window, [level, level], **CAP)


def _steps(curve: AmountCurve, window: Window, most: int) -> list[tuple[float, float]]:
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


def _write_beside(axes: Axes, texts: Sequence[str], row: float, middle: float) -> None:
    for place, text in _written(texts, row):
        axes.annotate(
            text, (1, len(texts) - 1 - place + middle), (3, 0), ("axes fraction", "data"),
            "offset points", va="center", color=FAINT, fontsize=SHEET.name,
        )  # fmt: skip


def _written(texts: Sequence[str], row: float) -> list[tuple[int, str]]:
    # Where rows are narrow, every second, third ... text.
    return list(enumerate(texts))[:: math.ceil(SHEET.name / row)]


def set_rows(axes: Axes, names: Sequence[str], row: float, middle: float) -> None:
    """Write the names of rows beside them, the first one at the top; of narrow rows only some.

    Parameters
    ----------
    axes : Axes
        The panel; rows are 1 apart and the last one begins at 0.
    names : sequence of str
    row : float
        Height of a row in points.
    middle : float
        Where in a row its name stands, 0 to 1.
    """
    shown = _written(names, row)
    axes.set_yticks(
        [len(names) - 1 - place + middle for place, _ in shown], [name for _, name in shown]
    )
    axes.tick_params(axis="y", length=0, labelsize=SHEET.name)


def draw_chart(axes: Axes, chart: Chart, row: float, points: float) -> None:
    """Draw the rows of a chart, their names and their busy shares.

    Parameters
    ----------
    axes : Axes
    chart : Chart
    row : float
        Height of a row in points.
    points : float
        Width of the panel.
    """
    count, scale = len(chart.rows), points / (chart.window[1] - chart.window[0])
    placed: list[tuple[float, Piece]] = []
    for place, each in enumerate(chart.rows):
        bottom = count - 1 - place + (1 - LAYOUT.bar) / 2
        first, known = chart.window[0], chart.known_end(each)
        if known > first:
            ground = [(first, known - first)]
            axes.broken_barh(ground, (bottom, LAYOUT.bar), color=PALE, linewidth=0)
        placed += [(bottom, piece) for piece in pieces_of(each.bars, chart.window, points)]
    _draw_pieces(axes, placed, scale)
    _write_names(axes, placed, scale, min(SHEET.name, 0.62 * row))
    for start in chart.iterations[1:]:
        axes.axvline(start, color=INK, linewidth=0.5)
    set_rows(axes, [named(each.name) for each in chart.rows], row, 0.5)
    _write_beside(axes, [chart.busy_share(each) for each in chart.rows], row, 0.5)
    axes.set_xlim(chart.window)
    axes.set_ylim(0, count)


def _draw_pieces(axes: Axes, placed: Sequence[tuple[float, Piece]], scale: float) -> None:
    """Paint all ops of one look as one path, which keeps files small."""
    from matplotlib.patches import PathPatch

    looks: dict[tuple[str, int, bool], list[tuple[float, Piece]]] = defaultdict(list)
    for bottom, piece in placed:
        is_parted = (piece.end - piece.start) * scale >= LAYOUT.parted
        looks[piece.bar.kind, piece.bar.shade % 2, is_parted].append((bottom, piece))
    for (kind, shade, is_parted), own in looks.items():
        # `add_patch` would look at every edge for the limits of the axes, which are set anyway.
        axes.add_artist(PathPatch(_path(own), **_face(look_of(kind), shade, 0.5 * is_parted)))


def _path(placed: Sequence[tuple[float, Piece]]) -> Path:
    from matplotlib.path import Path

    corners: list[tuple[float, float]] = []
    for bottom, piece in placed:
        left, right, top = piece.start, piece.end, bottom + LAYOUT.bar
        corners += [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(corners, codes * len(placed))


def _face(look: Look, shade: int, edge: float) -> dict[str, Any]:
    if look.is_hatched:
        # Hatches have the colour of edges before matplotlib 3.11.
        lines = {"edgecolor": SHADOW, "linewidth": 0.6 * edge, "hatch": HATCH}
    else:
        lines = {"edgecolor": "#ffffff", "linewidth": edge}
    return {"facecolor": look.fill(shade), **lines}


def _write_names(
    axes: Axes, placed: Sequence[tuple[float, Piece]], scale: float, size: float
) -> None:
    if size < LAYOUT.least_letter:
        return
    size, texts = _fitting([piece for _, piece in placed], scale, size)
    for (bottom, piece), text in zip(placed, texts, strict=True):
        if text:
            axes.text(
                (piece.start + piece.end) / 2, bottom + LAYOUT.bar / 2, text,
                color=ink_on(piece.bar.fill), fontsize=size, ha="center", va="center_baseline",
                clip_on=True,
            )  # fmt: skip


def _fitting(pieces: Sequence[Piece], scale: float, size: float) -> tuple[float, list[str]]:
    """Return the largest size of letters in which most ops are named, and the names.

    Where no readable size names most of them, the largest one names those that are wide.
    """
    sizes = (size, 0.85 * size, 0.7 * size)
    found = [
        (each, labels_of(pieces, scale, each)) for each in sizes if each >= LAYOUT.least_letter
    ]
    most = (one for one in found if sum(map(bool, one[1])) >= PIECES.enough * len(pieces))
    return next(most, found[0])


def draw_bound(axes: Axes, bound: float | None, window: Window) -> None:
    """Draw the proven bound as a line, named above it, where there is one within the window.

    Parameters
    ----------
    axes : Axes
    bound : float or None
        The time before which no schedule can end.
    window : (float, float)
    """
    if bound is None or not window[0] < bound <= window[1]:
        return
    axes.axvline(bound, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), clip_on=False)
    side = "right" if bound > 0.9 * window[1] else "center"
    axes.annotate("bound", (bound, 1), ha=side, **_ABOVE)


def _number_iterations(axes: Axes, chart: Chart, points: float) -> None:
    ends = [*chart.iterations, chart.end]
    scale = points / (chart.window[1] - chart.window[0])
    for number, (start, end) in enumerate(pairwise(ends)):
        left, right = max(start, chart.window[0]), min(end, chart.window[1])
        texts = (f"iteration {number}", str(number))
        text = next((t for t in texts if width_of(t) <= (right - left) * scale), "")
        if len(ends) > 2 and text:
            axes.annotate(text, ((left + right) / 2, 1), ha="center", color=FAINT, **_ABOVE)


def legend_of(chart: Chart) -> list[Artist]:
    """Return a patch for each kind of op of a chart, then those for what else is painted."""
    from matplotlib.patches import Patch

    found: list[Artist] = [
        Patch(label=printable(words), **_face(look, 0, 0.0)) for words, look in chart.legend.items()
    ]
    if has_chunks(chart.rows):
        label = f"dark: {chart.small_letters}"
        found.append(Patch(facecolor=darker(GREY), linewidth=0, label=label))
    return [*found, Patch(facecolor=PALE, linewidth=0, label=chart.idle)]


def set_times(axes: Axes, unit: str, points: float) -> None:
    """Name the axis of time of the lowest panel and write round times below it.

    Parameters
    ----------
    axes : Axes
    unit : str
    points : float
        Width of the panel.
    """
    from matplotlib.ticker import MaxNLocator

    room = width_of(f"{axes.get_xlim()[1]:,.0f}") + 2 * SHEET.name
    steps = max(1, min(LAYOUT.most_ticks, int(points / room)))
    axes.xaxis.set_major_locator(MaxNLocator(steps, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(lambda time, _: figure(float(f"{time:.12g}")))
    axes.set_xlabel(f"time ({printable(unit)})", labelpad=1)


@dataclass(frozen=True)
class _FigureLayout:
    """Where the parts of a figure are, in points from its upper edge."""

    chart: Chart
    curves: Sequence[AmountCurve]
    has_rows: bool
    has_title: bool
    width: float

    @cached_property
    def left(self) -> float:
        names = [row.name for row in self.chart.rows if self.has_rows]
        names += [curve.name for curve in self.curves]
        widest = max((width_of(named(name)) * SHEET.prose for name in names), default=0)
        return min(widest + 8, self.width - LAYOUT.least_room - self.right)

    @cached_property
    def right(self) -> float:
        peaks = [peak_of(curve) for curve in self.curves]
        return max(width_of(text) for text in [*peaks, "100%"]) * SHEET.prose + 10

    @cached_property
    def row(self) -> float:
        return min(LAYOUT.row, LAYOUT.most_rows / max(len(self.chart.rows), 1))

    @cached_property
    def strip(self) -> float:
        usual, most = LAYOUT.tall_strip, LAYOUT.most_rows
        if self.has_rows:
            usual, most = LAYOUT.strip, LAYOUT.most_below
        return min(usual, most / max(len(self.curves), 1))

    @cached_property
    def top(self) -> float:
        return SHEET.edge + (2 * SHEET.line if self.has_title else 0) + SHEET.above

    @cached_property
    def rows(self) -> float:
        return self.row * len(self.chart.rows) if self.has_rows else 0.0

    @cached_property
    def strips(self) -> float:
        return self.strip * len(self.curves)

    @cached_property
    def foot(self) -> float:
        gap = LAYOUT.gap if self.rows and self.strips else 0
        return self.top + self.rows + gap + self.strips


def schedule_figure(
    drawn: Drawn, title: str | None, inches: float, *, has_rows: bool = True
) -> Figure:
    """Return the figure of a schedule: its chart, with amounts over time below it.

    Parameters
    ----------
    drawn : Drawn
    title : str, optional
        First line, by default the instance and the method; empty for no lines above.
    inches : float
    has_rows : bool
        Draw the rows of devices; else the amounts alone.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        There is nothing to draw.
    """
    chart, curves = drawn.chart, drawn.curves
    _refuse_nothing(chart, curves, has_rows=has_rows)
    layout = _FigureLayout(chart, curves, has_rows, title != "", inches * SHEET.inch)
    legend = [*(legend_of(chart) if has_rows else []), *amount_legend(curves)]
    room = layout.width - layout.left - layout.right
    bottom = layout.foot + SHEET.axis
    height = bottom + SHEET.legend_line * len(legend_lines(legend, room)) + SHEET.edge
    sheet = Sheet.of(inches, height, layout.left, layout.right)
    sheet.title(drawn.shown.title if title is None else title, *drawn.captions)
    lowest = _draw_panels(sheet, layout, drawn.bound)
    set_times(lowest, chart.unit, sheet.room)
    sheet.legend(legend, bottom)
    return sheet.figure


def _refuse_nothing(chart: Chart, curves: Sequence[AmountCurve], *, has_rows: bool) -> None:
    first, last = chart.window
    if not last > first or not chart.rows:
        raise InputError("there is nothing to draw: no op takes time", field="schedule")
    if not has_rows and not curves:
        raise InputError(
            "there is no memory to draw; it needs an instance with a capacity", field="memory"
        )


def _draw_panels(sheet: Sheet, layout: _FigureLayout, bound: float | None) -> Axes:
    chart, panels = layout.chart, []
    if layout.has_rows:
        axes = sheet.panel(layout.top, layout.rows)
        draw_chart(axes, chart, layout.row, sheet.room)
        _number_iterations(axes, chart, sheet.room)
        draw_bound(axes, bound, chart.window)
        panels.append(axes)
    if layout.curves:
        axes = sheet.panel(layout.foot - layout.strips, layout.strips)
        _draw_amounts(axes, layout.curves, chart.window, layout.strip, sheet.room)
        panels.append(axes)
    for axes in panels[:-1]:
        axes.tick_params(axis="x", bottom=False, labelbottom=False)
    return panels[-1]
