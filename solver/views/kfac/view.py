"""A refresh around a pinned pipeline on the terminal: several iterations, device by device."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType

from ppsolve.models.core.result import ScheduleDocument, ScheduledOp
from ppsolve.models.documents.errors import InputError
from ppsolve.models.kinds.kfac.result import (
    RefreshEntry,
    RefreshFigures,
    RefreshResult,
    broken_rules,
)
from ppsolve.solver.views.chart import SYNC_KINDS, Chart, chart_rows, kinds_of
from ppsolve.solver.views.figures import ABSENT, figure
from ppsolve.solver.views.schedule_view import (
    HIDDEN_SYNCS,
    ScheduleReport,
    ScheduleView,
    ViewOptions,
    Window,
    busy_table,
)
from ppsolve.solver.views.tables import FittingTable, TableColumn, each, indented
from ppsolve.solver.views.wording import ITERATIONS, with_unit


def report_of_refresh(shown: ScheduleView, period: float) -> ScheduleReport:
    """Return the report on a refresh, its iterations side by side.

    Parameters
    ----------
    shown : ScheduleView
        With its instance.
    period : float
        Length of an iteration, in the unit of the schedule.

    Returns
    -------
    ScheduleReport

    Raises
    ------
    InputError
        Iterations are asked for that are not there.
    """
    source, links, unit = shown.source, shown.frame.links, shown.unit
    counts = _iterations(shown.document)
    most = max(counts.values(), default=1)
    rows = chart_rows(shown.document, shown.problem, links=True)
    devices = [row for row in rows if row.is_device]
    for row in devices:
        row.end = counts.get(int(row.name.split()[-1]), 1) * period
    hidden = set(kinds_of(rows)) - set(kinds_of(devices))
    chart = Chart(
        rows if links else devices,
        max(most * period, shown.end),
        shown.unit,
        _window(shown.frame, most, period),
        iterations=[number * period for number in range(most)],
        small_letters="the second pipe",
    )
    known = source if isinstance(source, RefreshResult | RefreshEntry) else RefreshFigures()
    return ScheduleReport(
        shown.title,
        chart,
        list(_facts(shown, most, period)),
        device_table(known, unit) if known.iterations_of else busy_table(devices, chart.end),
        [HIDDEN_SYNCS] if not links and set(SYNC_KINDS) & hidden else [],
    )


def _iterations(document: ScheduleDocument) -> dict[int, int]:
    """Return how many iterations of the pipeline each device runs."""
    counts: dict[int, int] = {}
    for op in document.ops:
        number = iteration_of(op)
        if op.device is not None and number is not None:
            counts[op.device] = max(counts.get(op.device, 1), number + 1)
    return counts


def iteration_of(op: ScheduledOp) -> int | None:
    """Return the iteration of an op of the pipeline; None for K-FAC work."""
    _, at, number = op.id.rpartition("@")
    return int(number) if at and number.isdecimal() else None


def _window(frame: ViewOptions, most: int, period: float) -> Window:
    if frame.iterations is None:
        return frame.window
    first, last = frame.iterations
    if last >= most:
        raise InputError(
            f"expected iterations from 0 to {most - 1}, got {last}", field="--iteration"
        )
    return first * period, (last + 1) * period


def _facts(shown: ScheduleView, most: int, period: float) -> Iterator[tuple[str, str]]:
    yield ITERATIONS, figure(most)
    yield "iteration", f"{figure(period)} {shown.unit}"
    work = [op.end for op in shown.document.ops if iteration_of(op) is None]
    if work:
        last = with_unit(figure(math.floor(100 * max(work) / period) / 100), ITERATIONS)
        yield "K-FAC work", f"done at {figure(max(work))} {shown.unit}, after {last}"


def device_table(known: RefreshFigures, unit: str) -> RenderableType:
    """Return the table of devices of a result or a heuristic; unknown figures have no column.

    Parameters
    ----------
    known : RefreshFigures
    unit : str
        Unit of times.

    Returns
    -------
    RenderableType
    """
    proved = known if isinstance(known, RefreshResult) else None
    bounds = proved and proved.bound_of
    devices = range(len(known.iterations_of or bounds or ()))
    proofs = (proved and proved.bounds_by) or [""] * len(devices)
    breaks = known.breaks_of if isinstance(known, RefreshEntry) else None
    ages = each(known.oldest_of, lambda age: ABSENT if age is None else f"{figure(age)} it.")
    found = FittingTable(
        TableColumn("device", each(devices, str)),
        TableColumn(ITERATIONS, each(known.iterations_of, figure)),
        TableColumn(
            "bound by",
            None if bounds is None else list(map("{} {}".format, bounds, proofs)),
            is_text=True,
        ),
        TableColumn("usage", each(known.usage_of, "{:.2f} %".format)),
        TableColumn(f"bubbles\nleft ({unit})", each(known.bubbles_of, figure), expendable=1),
        TableColumn("peak\nsaved", each(known.peak_saved_of, figure), expendable=3),
        TableColumn("oldest\ninverse", ages, expendable=2),
        TableColumn(
            "breaks",
            each(breaks, lambda rules: broken_rules(rules) or ABSENT),
            is_text=True,
            wraps=True,
        ),
    )
    return indented(found)
