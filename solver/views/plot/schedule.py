"""The figures of one schedule: its chart with amounts below it, or the amounts alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from ppsolve.models.core.result import ACTION_KINDS
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.printable import printable
from ppsolve.solver.views import colours
from ppsolve.solver.views.chart import (
    AmountCurve,
    Bar,
    Chart,
    Window,
    columns,
    has_chunks,
)
from ppsolve.solver.views.drawings import Drawn
from ppsolve.solver.views.figures import compact, figure
from ppsolve.solver.views.plot import sheet
from ppsolve.solver.views.plot.sheet import FAINT, INK, PALE, SHEET, named

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

FILL, HATCH, SHADOW = colours.lightened(colours.SKY, 0.35), "/////", "#00000073"
CAP: dict[str, Any] = {
    "color": colours.VERMILION,
    "linewidth": 0.8,
    "linestyle": (0, (3, 1.5)),
}
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
    most_rows: float = (
        210.0  # rows of many devices get narrower, so that text stays on the page
    )
    most_below: float = 120.0
    least_letter: float = 4.0  # smaller letters cannot be read in print
    parted: float = 3.0  # ops of this width are parted by white lines
    bar: float = 0.88  # share of a row's height that its ops take
    filled: float = (
        0.86  # share of a strip's height that its largest amount or cap takes
    )
    narrow: float = 0.5  # two dots of a printer; narrower ops cannot be told apart
    padding: float = 1.5  # stays free beside a name within an op
    letter: float = 0.64  # width of a digit of DejaVu Sans in multiples of its size
    most_charted: int = 2_000  # rows of a chart, each a tenth of a point on one page
    iteration: float = 6.0  # marks of iterations that are nearer cannot be told apart
    most_steps: int = 500  # of an amount; about the points of a page


LAYOUT = ScheduleLayout()


def peak_of(curve: AmountCurve) -> str:
    """Return the largest amount in a few digits, with its cap where it has one: ``7.5 of 8``."""
    texts = (value for value in (curve.most, curve.cap) if value is not None)
    # Larger amounts, such as bytes, are written in four characters; others in three digits.
    return " of ".join(
        compact(value) if value >= 10_000 else figure(value, 3) for value in texts
    )


def amount_legend(curves: Sequence[AmountCurve]) -> list[Artist]:
    """Return the entries of a legend for what is drawn of amounts."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = []
    has_cap = any(curve.cap is not None for curve in curves)
    if curves:
        label = "memory in use" if has_cap else "amount; full height at the right end"
        handles.append(Patch(facecolor=FILL, linewidth=0, label=label))
    if has_cap:
        handles.append(Line2D([], [], label="capacity", **CAP))
    return handles


def draw_amounts(
    axes: Axes, curves: Sequence[AmountCurve], window: Window, row: float
) -> None:
    """Draw amounts over time one below the other, each up to its largest amount or its cap.

    Each is `row` points high.
    """
    for position, curve in enumerate(curves, 1):
        steps = _steps(curve, window)
        share = LAYOUT.filled / (max(curve.most, curve.cap or 0) or 1.0)
        tops = [position - height * share for _, height in steps]
        times = [time for time, _ in steps]
        axes.fill_between(times, tops, position, step="post", color=FILL, linewidth=0)
        if curve.cap is not None:
            axes.plot(window, [position - curve.cap * share] * 2, **CAP)
    _label_rows(axes, [curve.name for curve in curves], list(map(peak_of, curves)), row)
    axes.set_xlim(window)


def _steps(curve: AmountCurve, window: Window) -> list[tuple[float, float]]:
    first, last = window
    if len(curve.points) <= LAYOUT.most_steps:
        inside = [
            (time, height) for time, height in curve.points if first < time < last
        ]
        before = [height for time, height in curve.points if time <= first]
        steps = [(first, before[-1] if before else 0.0), *inside]
    else:
        heights = curve.columns(window, LAYOUT.most_steps)
        step = (last - first) / len(heights)
        steps = [(first + index * step, height) for index, height in enumerate(heights)]
    return [*steps, (last, steps[-1][1])]


def _label_rows(
    axes: Axes, names: Sequence[str], notes: Sequence[str], row: float
) -> None:
    """Write texts at both ends of rows, the first row at the top; of narrow rows only some."""
    indices = range(0, len(names), math.ceil(SHEET.name / row))
    axes.set_yticks(
        [index + 0.5 for index in indices], [named(names[index]) for index in indices]
    )
    axes.tick_params(axis="y", length=0)
    for index in indices:
        axes.annotate(
            notes[index], (1, index + 0.5), (3, 0), ("axes fraction", "data"), "offset points",
            va="center", color=FAINT,
        )  # fmt: skip
    axes.set_ylim(len(names), 0)


def frame_chart(
    axes: Axes, chart: Chart, row: float, bound: float | None = None
) -> None:
    """Draw all of a chart but its ops: names of rows, idle time, iterations and the bound.

    A row is `row` points high; a bound is drawn where it is within the window.
    """
    first, last = chart.window
    for index, chart_row in enumerate(chart.rows):
        ground = [(first, chart.known_end(chart_row) - first)]
        axes.broken_barh(
            ground, (index + (1 - LAYOUT.bar) / 2, LAYOUT.bar), color=PALE, lw=0
        )
    _label_rows(
        axes, [r.name for r in chart.rows], list(map(chart.busy_share, chart.rows)), row
    )
    axes.set_xlim(first, last)
    if len(chart.iterations) > 1:
        _mark_iterations(axes, chart)
    if bound is not None and first < bound <= last:
        axes.axvline(
            bound, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), clip_on=False
        )
        side = "right" if bound > 0.9 * last else "center"
        axes.annotate("bound", (bound, 1), ha=side, **_ABOVE)


def _mark_iterations(axes: Axes, chart: Chart) -> None:
    """Mark the beginnings of iterations and number them; of too many, every n-th one."""
    first, last = chart.window
    spans = [
        (number, max(start, first), min(end, last))
        for number, (start, end) in enumerate(pairwise([*chart.iterations, chart.end]))
        if max(start, first) < min(end, last)
    ]
    points = axes.figure.get_figwidth() * SHEET.inch  # type: ignore[union-attr]
    every = math.ceil(len(spans) * LAYOUT.iteration / points)
    # A mark takes milliseconds; a refresh may have thousands of iterations.
    for number, start, end in spans[:: max(every, 1)]:
        axes.axvline(start, color=INK, linewidth=0.5)
        text = (
            f"iteration {number}" if end - start > (last - first) / 8 else f"{number}"
        )
        axes.annotate(text, ((start + end) / 2, 1), ha="center", color=FAINT, **_ABOVE)


@dataclass(frozen=True)
class Piece:
    """A stretch of a row in the colour of one bar: its own op unless ops are too narrow."""

    start: float
    end: float
    bar: Bar


def pieces_of(bars: Sequence[Bar], window: Window, points: float) -> list[Piece]:
    """Return the stretches of a row that is so many points wide, each in one colour.

    They are the ops that take time, cut to the window; or columns, where half of them are too
    narrow.
    """
    first, last = window
    seen = [
        bar
        for bar in bars
        if bar.end > bar.start and bar.end > first and bar.start < last
    ]
    if not seen:
        return []
    typical = median(bar.end - bar.start for bar in seen)
    if typical * points >= LAYOUT.narrow * (last - first):
        return [Piece(max(bar.start, first), min(bar.end, last), bar) for bar in seen]
    count = round(points / LAYOUT.narrow)
    step, column, pieces = (last - first) / count, 0, []
    for run in columns(seen, first, last, count):
        if run.bar is not None:
            pieces.append(
                Piece(
                    first + column * step, first + (column + run.width) * step, run.bar
                )
            )
        column += run.width
    return pieces


def name_of(piece: Piece, points: float, size: float) -> str:
    """Return the longest name of an op that fits at a size of letters, empty where none does.

    It is letter and micro-batch, else the micro-batch alone; names of other ops, else their letter.
    """
    label, letter = printable(piece.bar.label), printable(piece.bar.letter)
    short = (label.removeprefix(letter),) if piece.bar.kind in ACTION_KINDS else ()
    limit = int((points - LAYOUT.padding) / (size * LAYOUT.letter))
    names = short or (piece.bar.short, letter)
    return next((name for name in (label, *names) if 0 < len(name) <= limit), "")


def paint_ops(axes: Axes, chart: Chart, row: float, points: float) -> None:
    """Paint the ops of a chart, and write the names that fit.

    A row is `row` points high, and all are `points` wide.
    """
    scale = points / (chart.window[1] - chart.window[0])
    placed = [
        (index + (1 - LAYOUT.bar) / 2, piece)
        for index, chart_row in enumerate(chart.rows)
        for piece in pieces_of(chart_row.bars, chart.window, points)
    ]
    _draw_pieces(axes, placed, scale)
    size = min(SHEET.name, 0.62 * row)
    if size < LAYOUT.least_letter:
        return
    for top, piece in placed:
        if text := name_of(piece, (piece.end - piece.start) * scale, size):
            axes.text(
                (piece.start + piece.end) / 2, top + LAYOUT.bar / 2, text,
                color=colours.ink_on(piece.bar.fill), fontsize=size, ha="center",
                va="center_baseline", clip_on=True,
            )  # fmt: skip


def _draw_pieces(
    axes: Axes, placed: Sequence[tuple[float, Piece]], scale: float
) -> None:
    """Paint all ops of one look as one path, which keeps files small."""
    from matplotlib.patches import PathPatch

    looks: dict[tuple[str, int, bool], list[tuple[float, Piece]]] = defaultdict(list)
    for top, piece in placed:
        is_parted = (piece.end - piece.start) * scale >= LAYOUT.parted
        looks[piece.bar.kind, piece.bar.shade % 2, is_parted].append((top, piece))
    for (kind, shade, is_parted), pieces in looks.items():
        # `add_patch` would look at every edge for the limits of the axes, which are set anyway.
        face = _face(colours.look_of(kind), shade, 0.5 * is_parted)
        axes.add_artist(PathPatch(_path(pieces), **face))


def _path(placed: Sequence[tuple[float, Piece]]) -> Path:
    from matplotlib.path import Path

    corners: list[tuple[float, float]] = []
    for top, piece in placed:
        start, end, low = piece.start, piece.end, top + LAYOUT.bar
        corners += [(start, top), (end, top), (end, low), (start, low), (start, top)]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(corners, codes * len(placed))


def _face(look: colours.Look, shade: int, edge: float) -> dict[str, Any]:
    if look.is_hatched:
        # Hatches have the colour of edges before matplotlib 3.11.
        lines = {"edgecolor": SHADOW, "linewidth": 0.6 * edge, "hatch": HATCH}
    else:
        lines = {"edgecolor": "#ffffff", "linewidth": edge}
    return {"facecolor": look.fill(shade), **lines}


def legend_of(chart: Chart) -> list[Artist]:
    """Return a patch for each kind of op of a chart, then those for what else is painted."""
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Patch(label=printable(words), **_face(look, 0, 0.0))
        for words, look in chart.legend.items()
    ]
    if has_chunks(chart.rows):
        label = f"dark: {chart.small_letters}"
        handles.append(
            Patch(facecolor=colours.darker(colours.GREY), linewidth=0, label=label)
        )
    return [*handles, Patch(facecolor=PALE, linewidth=0, label=chart.idle)]


def name_times(axes: Axes, unit: str) -> None:
    """Name the axis of time of the lowest panel and write round times below it."""
    from matplotlib.ticker import MaxNLocator

    count = int(axes.figure.get_figwidth())  # type: ignore[union-attr]
    axes.xaxis.set_major_locator(MaxNLocator(max(count, 2), steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(lambda time, _: figure(float(f"{time:.12g}")))
    axes.set_xlabel(f"time ({printable(unit)})", labelpad=1)


def schedule_figure(
    drawn: Drawn, title: str | None, inches: float, *, has_rows: bool = True
) -> Figure:
    """Return the figure of a schedule: its chart, with amounts over time below it.

    The first line is by default the instance and the method; an empty title leaves no lines above.
    Without rows the amounts stand alone. An `InputError` says that there is nothing to draw, or
    that there are too many rows.
    """
    chart, curves = drawn.chart, drawn.curves
    if chart.window[1] <= chart.window[0] or not chart.rows:
        raise InputError(
            "there is nothing to draw: no op takes time",
            field="schedule",
            code=ErrorCode.MISSING,
        )
    if not has_rows and not curves:
        text = "there is no memory to draw; it needs an instance with a capacity"
        raise InputError(text, field="memory", code=ErrorCode.MISSING)
    if len(chart.rows) > LAYOUT.most_charted:
        text = (
            f"expected at most {LAYOUT.most_charted:,} rows, got {len(chart.rows):,}: "
            "none could be told from the next"
        )
        raise InputError(text, field="schedule", code=ErrorCode.RANGE)
    row = min(LAYOUT.row, LAYOUT.most_rows / len(chart.rows))
    usual = LAYOUT.strip if has_rows else LAYOUT.tall_strip
    limit = LAYOUT.most_below if has_rows else LAYOUT.most_rows
    strip = min(usual, limit / max(len(curves), 1))
    heights = [row * len(chart.rows) * has_rows, strip * len(curves)]
    legend = [*(legend_of(chart) if has_rows else []), *amount_legend(curves)]
    lines = has_rows + (0 if title == "" else 2)
    figure, panels = sheet.sheet_of(
        inches, [height for height in heights if height], legend, lines
    )
    first = drawn.shown.title if title is None else title
    sheet.write_title(panels[0], first, drawn.caption, above=int(has_rows))
    if has_rows:
        frame_chart(panels[0], chart, row, drawn.bound)
    if curves:
        draw_amounts(panels[-1], curves, chart.window, strip)
    name_times(panels[-1], chart.unit)
    points = sheet.width_in(panels[0])
    if has_rows:
        paint_ops(panels[0], chart, row, points)
    return figure
