"""Best values and bounds over memory or micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.printable import printable
from ppsolve.models.studies.curve import Curve, CurvePoint, Over, SolvedPoint
from ppsolve.solver.views.colours import BLUE, GREY, VERMILION, lightened
from ppsolve.solver.views.figures import ABSENT, figure, percent
from ppsolve.solver.views.plot.sheet import SHEET, sheet_of, write_title
from ppsolve.solver.views.tables import FittingTable, TableColumn, indented
from ppsolve.solver.views.wording import spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {Over.CAPACITY: "capacity", Over.MICROBATCHES: "micro-batches"}


def curve_report(found: Curve) -> RenderableType:
    """Return a sentence, and a table with a bar for each point."""
    per_microbatch = found.over is Over.MICROBATCHES
    shown = [p.microbatch_time if per_microbatch else p.value for p in found.points]
    low = min((each for each in shown if each is not None), default=0.0)
    over = [percent(h / low - 1) if h is not None and low else ABSENT for h in shown]
    times = [figure(point.microbatch_time) for point in found.points]
    by = [point.best_by or ABSENT for point in found.points]
    kept = [value_cell(point) for point in found.kept] if found.kept else None
    table = FittingTable(
        TableColumn(NAMES[found.over], [_place(point) for point in found.points]),
        TableColumn(
            f"value ({found.time_unit})", [value_cell(point) for point in found.points]
        ),
        TableColumn(
            "bound", [figure(point.bound) for point in found.points], expendable=1
        ),
        TableColumn("gap", [proof_cell(point) for point in found.points]),
        TableColumn("over least", over),
        TableColumn("all kept", kept),
        TableColumn("per micro-batch", times if per_microbatch else None),
        TableColumn("found by", by, is_text=True, is_cut=True, expendable=3),
    )
    return Group(Text(_sentence(found), "bold"), Text(), indented(table))


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


def _amount(at: float | Sequence[float]) -> str:
    if not isinstance(at, Sequence):
        return figure(at)
    low, high = figure(min(at)), figure(max(at))
    return low if low == high else f"{low} to {high}"


def _sentence(found: Curve) -> str:
    solved = [point for point in found.points if point.value is not None]
    proved = sum(point.gap == 0 for point in solved)
    text = f"{found.instance}: {found.objective.replace('_', ' ')} over {NAMES[found.over]}, "
    text += f"{len(found.points)} points, {proved} proved"
    gaps = [point.gap for point in solved if point.gap]
    text += f", largest gap {percent(max(gaps))}" if gaps else ""
    if found.over is Over.CAPACITY and len(solved) > 1:
        first, last = solved[0], solved[-1]
        if first.value and last.value is not None:
            saved = 1 - float(last.value) / float(first.value)
            text += (
                f". From {_place(first)} to {_place(last)} memory buys {percent(saved)}"
            )
    return text + "."


def curve_figure(found: Curve, title: str, inches: float) -> Figure:
    """Return the picture of a curve: values, bounds below them, the gap between shaded.

    `title`: line above; empty for none.
    Raises `InputError`: no point has a value or a bound.
    """
    points = [(_place_of(point), point) for point in found.points]
    if all(p.value is None and p.bound is None for p in found.points):
        raise InputError("no point has a value or a bound to draw", field="points")
    made, (axes,) = sheet_of(inches, [0.62 * inches * SHEET.inch], lines=bool(title))
    write_title(axes, title)
    _draw_curve(axes, points)
    kept = [
        (_place_of(point), point.value) for point in found.kept or () if point.value
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
        axis.set_major_formatter(lambda at, _: figure(float(f"{at:.12g}")))
    multiples = " (multiples of p)" * any(p.multiple is not None for p in found.points)
    axes.set_xlabel(f"{NAMES[found.over]}{multiples}", labelpad=1)
    axes.set_ylabel(
        f"{spaced(found.objective)} ({printable(found.time_unit)})", labelpad=2
    )
    axes.legend(loc="best", frameon=False)
    return made


def _place_of(point: CurvePoint) -> float:
    at = point.at if point.multiple is None else point.multiple
    return float(max(at) if isinstance(at, list) else at)


def _draw_curve(axes: Axes, points: list[tuple[float, CurvePoint]]) -> None:
    both = [
        (x, float(p.bound), float(p.value)) for x, p in points if p.bound and p.value
    ]
    if len(both) > 1:
        xs, lows, highs = zip(*both, strict=True)
        axes.fill_between(
            xs, lows, highs, color=lightened(VERMILION, 0.75), linewidth=0
        )
    proved = [(x, p.value) for x, p in points if p.value is not None and p.gap == 0]
    others = [(x, p.value) for x, p in points if p.value is not None and p.gap != 0]
    line: dict[str, Any] = {
        "color": BLUE,
        "linestyle": "none",
        "marker": "o",
        "markersize": 3.5,
    }
    bounds = [(x, p.bound) for x, p in points if p.bound is not None]
    _plot(
        axes,
        bounds,
        label="lower bound",
        color=VERMILION,
        linestyle="--",
        linewidth=1.0,
    )
    _plot(axes, sorted([*proved, *others]), color=BLUE, linewidth=1.2)
    _plot(axes, proved, label="best schedule, proved optimal", **line)
    _plot(axes, others, label="best schedule", **line | {"markerfacecolor": "white"})


def _plot(
    axes: Axes, points: Sequence[tuple[float, float | None]], **look: Any
) -> None:
    if points:
        axes.plot([x for x, _ in points], [float(y or 0) for _, y in points], **look)
