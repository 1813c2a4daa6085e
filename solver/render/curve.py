"""Curves on the terminal and as charts: makespan and bound over memory, micro-batches or chunks."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import Figure
from ppsolve.models.curve import Curve, CurvePoint, Over
from ppsolve.solver.render.figures import ABSENT, figure, percent
from ppsolve.solver.render.tables import FittingTable, TableColumn, indented

NAMES = {
    Over.CAPACITY: "capacity",
    Over.MICROBATCHES: "micro-batches",
    Over.CHUNKS: "chunks per device",
}
BAR_COLUMNS = 24
"""Columns of the bars from the best value of all to the worst; half of them tell fewer apart."""


def curve_report(found: Curve) -> RenderableType:
    """Return a sentence, and a table with a bar for each point."""
    per_microbatch = found.over is Over.MICROBATCHES
    table = FittingTable(
        TableColumn(NAMES[found.over]),
        TableColumn(f"value ({found.time_unit})"),
        TableColumn("bound", expendable=1),
        TableColumn("gap"),
        TableColumn("over least"),
        *([TableColumn("per micro-batch")] if per_microbatch else []),
        TableColumn("found by", is_text=True, is_cut=True, expendable=3),
        TableColumn("", is_text=True, expendable=2),
    )
    shown = [_height(point, per_microbatch=per_microbatch) for point in found.points]
    known = [each for each in shown if each is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    for point, height in zip(found.points, shown, strict=True):
        cells = (
            _place(point),
            figure(point.value) if point.value is not None else str(point.status).lower(),
            figure(point.bound),
            "proved" if point.gap == 0 else percent(point.gap),
            percent(height / low - 1) if height is not None and low else ABSENT,
            *([figure(point.microbatch_time)] if per_microbatch else []),
            point.best_by or ABSENT,
            _bar(height, low, high),
        )
        table.add_row(*cells)
    return Group(Text(_sentence(found), "bold"), Text(), indented(table))


def _height(point: CurvePoint, *, per_microbatch: bool) -> float | None:
    value = point.microbatch_time if per_microbatch else point.value
    return None if value is None else float(value)


def _place(point: CurvePoint) -> str:
    amount = _amount(point.at)
    return amount if point.multiple is None else f"{figure(point.multiple)}p = {amount}"


def _amount(at: Figure | list[Figure]) -> str:
    if not isinstance(at, list):
        return figure(at)
    low, high = figure(min(at)), figure(max(at))
    return low if low == high else f"{low} to {high}"


def _bar(height: float | None, low: float, high: float) -> str:
    if height is None:
        return ""
    share = (height - low) / (high - low) if high > low else 0.0
    return "━" * (1 + round(share * (BAR_COLUMNS - 1)))


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
