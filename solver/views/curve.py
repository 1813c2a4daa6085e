"""Best values and bounds over memory or micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import Figure as Amount
from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.documents.printable import printable
from ppsolve.models.studies.curve import (
    Curve,
    CurvePoint,
    Over,
    PointHeuristic,
    SolvedPoint,
)
from ppsolve.solver.views.colours import BLUE, GREY, VERMILION, lightened
from ppsolve.solver.views.figures import ABSENT, figure, percent, ratio
from ppsolve.solver.views.plot.sheet import SHEET, sheet_of, write_title
from ppsolve.solver.views.tables import FittingTable, TableColumn, indented
from ppsolve.solver.views.time_units import readable_rate, scaled
from ppsolve.solver.views.wording import spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {Over.CAPACITY: "capacity", Over.MICROBATCHES: "micro-batches"}


BOUND = 9
"""Columns of heuristics are left out after that of the bound where space is short."""


def curve_report(curve: Curve) -> RenderableType:
    """Return a sentence, and a table with a bar for each point."""
    curve = _in_readable_unit(curve)
    per_microbatch = curve.over is Over.MICROBATCHES
    heights = [p.microbatch_time if per_microbatch else p.value for p in curve.points]
    low = min((height for height in heights if height is not None), default=0.0)
    over = [percent(h / low - 1) if h is not None and low else ABSENT for h in heights]
    times = [figure(point.microbatch_time) for point in curve.points]
    by = [point.best_by or ABSENT for point in curve.points]
    kept = [_height_cell(curve, p) for p in curve.kept] if curve.kept else None
    bounds = [_number(curve, _bound_of(curve, point)) for point in curve.points]
    table = FittingTable(
        TableColumn(NAMES[curve.over], [_place(point) for point in curve.points]),
        TableColumn(
            "bubble ratio" if curve.rates else f"value ({curve.time_unit})",
            [_height_cell(curve, point) for point in curve.points],
        ),
        TableColumn("bound", bounds, expendable=BOUND),
        *_heuristic_columns(curve),
        TableColumn("gap", [proof_cell(point) for point in curve.points]),
        TableColumn("over least", over, expendable=BOUND + 1),
        TableColumn("all kept", kept),
        TableColumn("per micro-batch", times if per_microbatch else None),
        TableColumn(
            "found by",
            by,
            is_text=True,
            wraps=True,
            wrap_at=36,
            expendable=BOUND + 2,
        ),
    )
    return Group(Text(_sentence(curve), "bold"), Text(), indented(table))


SOLVED_TIMES = ("value", "bound", "microbatch_time")
"""Fields of a solved point that are times."""


def _in_readable_unit(curve: Curve) -> Curve:
    times = [time for point in curve.points for time in (point.value, point.bound)]
    unit, factor = readable_rate(curve.time_unit, times)
    points = tuple(
        scaled(point, factor, *SOLVED_TIMES).model_copy(
            update={
                "heuristics": tuple(
                    scaled(h, factor, "value") for h in point.heuristics
                )
            }
        )
        for point in curve.points
    )
    kept = curve.kept and tuple(scaled(k, factor, *SOLVED_TIMES) for k in curve.kept)
    changes = {"points": points, "kept": kept, "time_unit": unit}
    return curve.model_copy(update=changes)


def _heuristic_columns(curve: Curve) -> Iterator[TableColumn]:
    """Yield a column for each heuristic that was run at every point."""
    rows = zip(*(point.heuristics for point in curve.points), strict=True)
    for number, entries in enumerate(rows):
        cells = [
            _number(curve, _height_of(curve, entry))
            if entry.value is not None
            else spaced(entry.status.value)
            for entry in entries
        ]
        yield TableColumn(entries[0].name, cells, expendable=min(number, BOUND - 1))


def _height_of(curve: Curve, point: CurvePoint | PointHeuristic) -> Amount | None:
    return point.bubble_ratio if curve.rates else point.value


def _bound_of(curve: Curve, point: CurvePoint) -> Amount | None:
    return point.bound_bubble_ratio if curve.rates else point.bound


def _number(curve: Curve, height: Amount | None) -> str:
    return ratio(height) if curve.rates else figure(height)


def _height_cell(curve: Curve, point: CurvePoint) -> str:
    if point.value is None:
        return value_cell(point)
    return _number(curve, _height_of(curve, point))


def value_cell(point: SolvedPoint) -> str:
    """Return the value of a point, its status where it has none."""
    return str(point.status).lower() if point.value is None else figure(point.value)


def proof_cell(point: SolvedPoint) -> str:
    """Return the gap of a point; ``proved`` where there is none."""
    if point.gap is None:
        return ABSENT
    return percent(point.gap) if point.gap else "proved"


def _place(point: CurvePoint) -> str:
    amount = _amount(point.at)
    return amount if point.multiple is None else f"{figure(point.multiple)}p = {amount}"


def _amount(position: float | Sequence[float]) -> str:
    if not isinstance(position, Sequence):
        return figure(position)
    low, high = figure(min(position)), figure(max(position))
    return low if low == high else f"{low} to {high}"


def _sentence(curve: Curve) -> str:
    solved = [point for point in curve.points if point.value is not None]
    proved = sum(point.gap == 0 for point in solved)
    name = (
        curve.instance
        if curve.runtime is None
        else f"{curve.instance} for {curve.runtime}"
    )
    text = f"{name}: {curve.objective.replace('_', ' ')} over {NAMES[curve.over]}, "
    text += f"{len(curve.points)} points, {proved} proved"
    gaps = [point.gap for point in solved if point.gap]
    text += f", largest gap {percent(max(gaps))}" if gaps else ""
    if curve.over is Over.CAPACITY and len(solved) > 1:
        first, last = solved[0], solved[-1]
        if first.value and last.value is not None:
            saved = 1 - float(last.value) / float(first.value)
            text += f". From {_place(first)} to {_place(last)} the value falls by {percent(saved)}"
    return text + "."


def curve_figure(curve: Curve, title: str, inches: float) -> Figure:
    """Return the picture of a curve: values, bounds below them, the gap between shaded.

    An empty title leaves no line above. An `InputError` says that no point has a value or a bound.
    """
    points = [(_place_of(point), point) for point in curve.points]
    if all(
        _height_of(curve, p) is None and _bound_of(curve, p) is None
        for p in curve.points
    ):
        raise InputError(
            "no point has a value or a bound to draw",
            field="points",
            code=ErrorCode.MISSING,
        )
    picture, (axes,) = sheet_of(inches, [0.62 * inches * SHEET.inch], lines=bool(title))
    write_title(axes, title)
    _draw_curve(axes, curve, points)
    _draw_heuristics(axes, curve)
    kept = [
        (_place_of(point), _height_of(curve, point))
        for point in curve.kept or ()
        if point.value
    ]
    _plot(
        axes,
        kept,
        label="every activation kept",
        color=GREY,
        marker="s",
        markersize=3.0,
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda position, _: figure(float(f"{position:.12g}")))
    multiples = " (multiples of p)" * any(p.multiple is not None for p in curve.points)
    axes.set_xlabel(f"{NAMES[curve.over]}{multiples}", labelpad=1)
    unit = "bubble ratio" if curve.rates else printable(curve.time_unit)
    axes.set_ylabel(f"{spaced(curve.objective)} ({unit})", labelpad=2)
    axes.legend(loc="best", frameon=False)
    return picture


def _place_of(point: CurvePoint) -> float:
    position = point.at if point.multiple is None else point.multiple
    return float(max(position) if isinstance(position, list) else position)


def _draw_heuristics(axes: Axes, curve: Curve) -> None:
    rows = zip(*(point.heuristics for point in curve.points), strict=True)
    for number, entries in enumerate(rows):
        heights = [
            (_place_of(point), _height_of(curve, entry))
            for point, entry in zip(curve.points, entries, strict=True)
            if entry.value is not None
        ]
        marker = "^vDXPd"[number % 6]
        look: dict[str, Any] = {"linewidth": 0.6, "markersize": 2.5, "color": GREY}
        _plot(axes, heights, label=printable(entries[0].name), marker=marker, **look)


def _draw_curve(
    axes: Axes, curve: Curve, points: list[tuple[float, CurvePoint]]
) -> None:
    places = [
        (x, _bound_of(curve, p), _height_of(curve, p), p.gap == 0) for x, p in points
    ]
    bounded = [
        (x, float(low), float(high))
        for x, low, high, _ in places
        if low is not None and high is not None
    ]
    if len(bounded) > 1:
        xs, lows, highs = zip(*bounded, strict=True)
        axes.fill_between(
            xs, lows, highs, color=lightened(VERMILION, 0.75), linewidth=0
        )
    seen = [place for place in places if place[2] is not None]
    proved = [(x, high) for x, _, high, is_proved in seen if is_proved]
    unproved = [(x, high) for x, _, high, is_proved in seen if not is_proved]
    line: dict[str, Any] = {
        "color": BLUE,
        "linestyle": "none",
        "marker": "o",
        "markersize": 3.5,
    }
    bounds = [(x, low) for x, low, _, _ in places if low is not None]
    _plot(
        axes,
        bounds,
        label="lower bound",
        color=VERMILION,
        linestyle="--",
        linewidth=1.0,
    )
    _plot(axes, sorted([*proved, *unproved]), color=BLUE, linewidth=1.2)
    _plot(axes, proved, label="best schedule, proved optimal", **line)
    _plot(axes, unproved, label="best schedule", **line | {"markerfacecolor": "white"})


def _plot(
    axes: Axes, points: Sequence[tuple[float, float | None]], **look: Any
) -> None:
    if points:
        axes.plot([x for x, _ in points], [float(y or 0) for _, y in points], **look)
