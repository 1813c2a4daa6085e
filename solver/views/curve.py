"""Best values and bounds over memory, micro-batches or chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.documents.errors import InputError
from ppsolve.models.documents.printable import printable
from ppsolve.models.studies.curve import Curve, CurvePoint, Over
from ppsolve.solver.views.colours import BLUE, VERMILION, lightened
from ppsolve.solver.views.figures import ABSENT, BAR, figure, percent, scaled
from ppsolve.solver.views.plot.sheet import SHEET, Sheet, width_of
from ppsolve.solver.views.tables import FittingTable, TableColumn, indented
from ppsolve.solver.views.wording import spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    Over.CAPACITY: "capacity",
    Over.MICROBATCHES: "micro-batches",
    Over.CHUNKS: "chunks per device",
}


def curve_report(found: Curve) -> RenderableType:
    """Return a sentence, and a table with a bar for each point."""
    per_microbatch = found.over is Over.MICROBATCHES
    shown = [_height(point, per_microbatch=per_microbatch) for point in found.points]
    known = [each for each in shown if each is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    over = [percent(h / low - 1) if h is not None and low else ABSENT for h in shown]
    times = [figure(point.microbatch_time) for point in found.points]
    by = [point.best_by or ABSENT for point in found.points]
    bars = ["" if h is None else BAR * (1 + scaled(h, low, high, 24)) for h in shown]
    table = FittingTable(
        TableColumn(NAMES[found.over], [_place(point) for point in found.points]),
        TableColumn(f"value ({found.time_unit})", [_value(point) for point in found.points]),
        TableColumn("bound", [figure(point.bound) for point in found.points], expendable=1),
        TableColumn("gap", [percent(p.gap) if p.gap else _proof(p) for p in found.points]),
        TableColumn("over least", over),
        TableColumn("per micro-batch", times if per_microbatch else None),
        TableColumn("found by", by, is_text=True, is_cut=True, expendable=3),
        TableColumn("", bars, is_text=True, expendable=2),
    )
    return Group(Text(_sentence(found), "bold"), Text(), indented(table))


def _value(point: CurvePoint) -> str:
    return str(point.status).lower() if point.value is None else figure(point.value)


def _proof(point: CurvePoint) -> str:
    return ABSENT if point.gap is None else "proved"


def _height(point: CurvePoint, *, per_microbatch: bool) -> float | None:
    value = point.microbatch_time if per_microbatch else point.value
    return None if value is None else float(value)


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
            text += f". From {_place(first)} to {_place(last)} memory buys {percent(saved)}"
    return text + "."


def curve_figure(found: Curve, title: str, inches: float) -> Figure:
    """Return the picture of a curve: values, bounds below them, the gap between shaded.

    Parameters
    ----------
    found : Curve
    title : str
        Line above; empty for none.
    inches : float

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        No point has a value or a bound.
    """
    from matplotlib.ticker import MaxNLocator

    points = [(_place_of(point), point) for point in found.points]
    heights = [float(y) for _, p in points for y in (p.value, p.bound) if y is not None]
    if not heights:
        raise InputError("no point has a value or a bound to draw", field="points")
    ticks = max(width_of(figure(height)) for height in heights) * SHEET.prose
    top = SHEET.edge + (SHEET.line if title else 0) + SHEET.name
    room = 0.62 * inches * SHEET.inch  # about the golden ratio
    sheet = Sheet.of(
        inches, top + room + SHEET.axis + SHEET.edge, ticks + 24, SHEET.edge + SHEET.name
    )
    sheet.title(title, "")
    axes = sheet.panel(top, room)
    _draw_curve(axes, points)
    low, high = min(heights), max(heights)
    spare = 0.06 * ((high - low) or high or 1.0)
    axes.set_ylim(low - spare, high + spare)
    axes.yaxis.set_major_formatter(lambda y, _: figure(float(f"{y:.12g}")))
    axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda x, _: figure(float(f"{x:.12g}")))
    axes.set_xlabel(_axis_of(found), labelpad=1)
    axes.set_ylabel(f"{spaced(found.objective)} ({printable(found.time_unit)})", labelpad=2)
    axes.legend(loc="best", frameon=False)
    return sheet.figure


def _place_of(point: CurvePoint) -> float:
    at = point.at if point.multiple is None else point.multiple
    return float(max(at) if isinstance(at, list) else at)


def _axis_of(found: Curve) -> str:
    is_multiple = any(point.multiple is not None for point in found.points)
    return f"{NAMES[found.over]} (multiples of p)" if is_multiple else NAMES[found.over]


def _draw_curve(axes: Axes, points: list[tuple[float, CurvePoint]]) -> None:
    values = [(x, float(p.value), p.gap == 0) for x, p in points if p.value is not None]
    bounds = [(x, float(p.bound)) for x, p in points if p.bound is not None]
    both = [(x, p.bound, p.value) for x, p in points if p.bound is not None and p.value is not None]
    if len(both) > 1:
        axes.fill_between(
            [x for x, _, _ in both], [float(low) for _, low, _ in both],
            [float(high) for _, _, high in both], color=lightened(VERMILION, 0.75), linewidth=0,
        )  # fmt: skip
    line: dict[str, Any] = {"color": VERMILION, "linestyle": (0, (4, 2)), "linewidth": 1.0}
    axes.plot(*_coordinates(bounds), label="lower bound", **line)
    axes.plot(*_coordinates([(x, y) for x, y, _ in values]), color=BLUE, linewidth=1.2)
    for proved, label in ((True, "best schedule, proved optimal"), (False, "best schedule")):
        own = [(x, y) for x, y, is_proved in values if is_proved is proved]
        face = BLUE if proved else "white"
        marks: dict[str, Any] = {"marker": "o", "markersize": 3.5, "markerfacecolor": face}
        if own:
            axes.plot(*_coordinates(own), color=BLUE, linestyle="none", label=label, **marks)


def _coordinates(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
