"""Schedules of kernels and collectives on the terminal: streams, waits, curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

from rich.console import RenderableType

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.overlap.result import OverlapEntry, OverlapResult, ProgramFigures
from ppsolve.solver.overlap.replay import is_valid_order, live_bytes
from ppsolve.solver.overlap.report import ProgramReport
from ppsolve.solver.render.curves import AmountCurve
from ppsolve.solver.render.figures import figure
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.looks import WAIT_KIND
from ppsolve.solver.render.overlap.facts import program_facts
from ppsolve.solver.render.overlap.rows import stream_rows
from ppsolve.solver.render.schedule_view import ScheduleView, busy_table

Points = Sequence[tuple[float, float]] | None
"""An amount from each time on, if it is known."""


def chart_of_program(shown: ScheduleView) -> Gantt:
    """Return the chart of a program: its streams, what is in flight and what is held.

    Without the instance its file says what is in flight and held. With it, but without a source
    whose program order runs as the schedule, what is in flight is not known.

    Raises
    ------
    InputError
        A curve holds numbers that cannot be drawn.
    """
    return _drawn(shown)[0]


def view_of_program(shown: ScheduleView) -> RenderableType:
    """Return the view of a schedule of a program; errors as in `chart_of_program`."""
    instance = cast("OverlapInstance | None", shown.instance)
    chart, found = _drawn(shown)
    least = shown.source.least_peak_bytes if isinstance(shown.source, OverlapResult) else None
    facts = program_facts(found, shown.end, shown.unit, instance, least)
    return shown.laid_out(
        chart,
        [("makespan", f"{figure(shown.end)} {shown.unit}"), *facts],
        busy_table(chart.rows, shown.end, head="stream"),
    )


def _drawn(shown: ScheduleView) -> tuple[Gantt, ProgramFigures]:
    instance = cast("OverlapInstance | None", shown.instance)
    rows = stream_rows(shown.document, instance)
    waited = sum(bar.end - bar.start for bar in rows[0].bars if bar.kind == WAIT_KIND)
    if instance is not None and shown.schedule is not None:
        found, *points = _replayed(instance, shown.schedule, shown.source, waited)
    else:
        found, *points = _written(shown.source, waited)
    curves, window = list(_curves(*points)), shown.frame.window
    chart = Gantt(rows, shown.end, shown.unit, window, curves=curves, idle="stream is idle")
    return chart, found


def _replayed(
    instance: OverlapInstance, schedule: Schedule, source: object, waited: float
) -> tuple[ProgramFigures, Points, Points]:
    """Return figures, what is in flight and what is held, by the instance."""
    order = source.order if isinstance(source, OverlapResult | OverlapEntry) else None
    program = program_of(instance, schedule, order)
    if program is not None:
        curves = program.curves()
        found = ProgramFigures.model_validate(program.figures())
        return found, curves["in_flight_curve"], curves["live_bytes_curve"]
    count, time = len(instance.nodes), schedule.problem.scale.time
    live = live_bytes(instance, schedule.start[:count], schedule.end[:count])
    points = zip(map(time, live.times), map(float, live.amounts), strict=True)
    found = ProgramFigures(exposed_wait=waited, peak_live_bytes=float(live.peak))
    return found, None, list(points)


def _written(source: object, waited: float) -> tuple[ProgramFigures, Points, Points]:
    """Return figures, what is in flight and what is held, by the file."""
    if isinstance(source, OverlapResult):
        return source, source.in_flight_curve, source.live_bytes_curve
    if isinstance(source, OverlapEntry):
        return source, None, None
    return ProgramFigures(exposed_wait=waited), None, None


def _curves(in_flight: Points, live: Points) -> Iterator[AmountCurve]:
    for name, points in {"in flight": in_flight or (), "live bytes": live or ()}.items():
        for number, point in enumerate(points):
            if not all(map(math.isfinite, point)):
                field = f"{name.replace(' ', '_')}_curve[{number}]"
                raise InputError("expected finite numbers", field=field)
        if (curve := AmountCurve(name, points)).most:
            yield curve


def program_of(
    instance: OverlapInstance, schedule: Schedule, order: object
) -> ProgramReport | None:
    """Return the program that `order` (names) names, if it runs as the schedule does.

    Kernels and collectives must start when the schedule says so.

    Parameters
    ----------
    instance : OverlapInstance
        The program.
    schedule : Schedule
        A schedule of it.
    order : object
        Names of nodes in program order, if they are that.

    Returns
    -------
    ProgramReport or None
        The program as it runs; None if the order is no such list or runs otherwise.
    """
    index = instance.index_of
    if not isinstance(order, list) or not all(
        isinstance(name, str) and name in index for name in order
    ):
        return None
    places = [index[name] for name in order]
    if not is_valid_order(instance, places):
        return None
    report = ProgramReport(instance, schedule.problem, places)
    running = instance.of_kind(NodeKind.COMPUTE) + instance.of_kind(NodeKind.COMM)
    same = (report.schedule.start[running] == schedule.start[running]).all()
    return report if same else None
