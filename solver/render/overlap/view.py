"""An overlap instance and its schedules on the terminal: streams, waits, curves, totals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.models.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.overlap.result import OverlapEntry, OverlapResult, ProgramFigures
from ppsolve.solver.overlap.replay import is_valid_order, live_bytes
from ppsolve.solver.overlap.report import ProgramReport
from ppsolve.solver.render.curves import Curve
from ppsolve.solver.render.drawing import HINT
from ppsolve.solver.render.figures import ABSENT, figure, percent
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.overlap.report import limited, program_facts
from ppsolve.solver.render.overlap.rows import KERNEL_KIND, collective_kind, stream_rows
from ppsolve.solver.render.rows import WAIT_KIND, Row
from ppsolve.solver.render.schedule_view import Window, busy_table
from ppsolve.solver.render.tables import facts

IN_FLIGHT, LIVE_BYTES = "in flight", "live bytes"


@dataclass(frozen=True)
class OverlapView:
    """All that is shown of one schedule of an overlap instance; printing it draws it.

    Parameters
    ----------
    title : str
        First line.
    rows : list of Row
        The compute stream, then the comm streams.
    unit : str
        Unit of time.
    figures : list of (str, str)
        Names and values below the chart, after the makespan.
    curves : sequence of Curve
        What is in flight and held over time, where known.
    window : (float, float or None)
        Part of the time axis to draw; ``None`` is its end.
    """

    title: str
    rows: list[Row]
    unit: str
    figures: list[tuple[str, str]]
    curves: Sequence[Curve] = ()
    window: Window = (0, None)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield title, chart, figures and the table of streams."""
        bars = [bar for row in self.rows for bar in row.bars]
        makespan = float(max((bar.end for bar in bars), default=0))
        yield Text(self.title, "bold", overflow="fold")
        yield Gantt(
            self.rows, makespan, self.unit, self.window, curves=self.curves, idle="stream is idle"
        )
        yield Text()
        yield facts([("makespan", f"{figure(makespan)} {self.unit}"), *self.figures])
        yield Text()
        yield busy_table(self.rows, makespan, head="stream")


def view_of_overlap(
    title: str,
    instance: OverlapInstance,
    schedule: Schedule,
    source: Result | HeuristicEntry | None = None,
    window: Window = (0, None),
) -> OverlapView:
    """Return the view of a schedule of a known instance.

    Without a source whose program order runs as the schedule, what is in flight is not known.
    """
    order = source.order if isinstance(source, OverlapResult | OverlapEntry) else None
    program = program_of(instance, schedule, order)
    document = ScheduleDocument.of(schedule)
    rows = stream_rows(document, instance)
    if program is not None:
        found: dict[str, Any] = program.figures() | program.curves()
    else:
        found = _figures_of_schedule(instance, schedule, rows)
    curves = _curves(found.get("in_flight_curve"), found["live_bytes_curve"])
    makespan = schedule.problem.scale.time(schedule.makespan)
    program_figures = ProgramFigures.model_validate(found)
    least = source.least_peak_bytes if isinstance(source, OverlapResult) else None
    figures = list(program_facts(program_figures, makespan, document.time_unit, instance, least))
    return OverlapView(title, rows, document.time_unit, figures, curves, window)


def _figures_of_schedule(
    instance: OverlapInstance, schedule: Schedule, rows: list[Row]
) -> dict[str, Any]:
    count, time = len(instance.nodes), schedule.problem.scale.time
    live = live_bytes(instance, schedule.start[:count], schedule.end[:count])
    return {
        "exposed_wait": _waited(rows),
        "peak_live_bytes": float(live.peak),
        "live_bytes_curve": [
            (time(at), float(amount)) for at, amount in zip(live.times, live.amounts, strict=True)
        ],
    }


def _waited(rows: list[Row]) -> float:
    return sum(bar.end - bar.start for bar in rows[0].bars if bar.kind == WAIT_KIND)


def program_of(
    instance: OverlapInstance, schedule: Schedule, order: object
) -> ProgramReport | None:
    """Return the program that `order` (names) names, if it runs as the schedule does.

    Kernels and collectives must start when the schedule says so.
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


def view_of_overlap_document(
    title: str,
    document: ScheduleDocument,
    source: Result | HeuristicEntry | None = None,
    window: Window = (0, None),
) -> OverlapView:
    """Return the view of a schedule without its instance: what its file says.

    Raises
    ------
    InputError
        A curve holds numbers that cannot be drawn.
    """
    rows = stream_rows(document)
    curves: list[Curve] = []
    if isinstance(source, OverlapResult):
        curves = _curves(source.in_flight_curve, source.live_bytes_curve)
    found = ProgramFigures(exposed_wait=_waited(rows))
    if isinstance(source, OverlapResult | OverlapEntry):
        found = source
    makespan = max((op.end for op in document.ops), default=0)
    least = source.least_peak_bytes if isinstance(source, OverlapResult) else None
    figures = list(program_facts(found, makespan, document.time_unit, least=least))
    return OverlapView(title, rows, document.time_unit, figures, curves, window)


def _curves(
    in_flight: Sequence[tuple[float, int]] | None, live: Sequence[tuple[float, float]] | None
) -> list[Curve]:
    given = {"in_flight_curve": in_flight or (), "live_bytes_curve": live or ()}
    for name, points in given.items():
        for number, point in enumerate(points):
            if not all(map(math.isfinite, point)):
                raise InputError("expected finite numbers", field=f"{name}[{number}]")
    found = [
        Curve(IN_FLIGHT, given["in_flight_curve"]),
        Curve(LIVE_BYTES, given["live_bytes_curve"]),
    ]
    return [curve for curve in found if curve.most]


def describe_overlap(instance: OverlapInstance) -> RenderableType:
    """Return what a program consists of, and what can be done with it."""
    title = Text(f"{instance.name}: a program of kernels and collectives", "bold")
    return Group(title, facts([*_counts(instance), *_limits(instance), *_totals(instance)]), HINT)


def _counts(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    count = Counter(node.kind for node in instance.nodes)
    words = {
        NodeKind.COMPUTE: KERNEL_KIND,
        NodeKind.COMM: "collective",
        NodeKind.WAIT: "wait",
    }
    counted = ", ".join(_counted(count[kind], word) for kind, word in words.items())
    yield "nodes", f"{figure(len(instance.nodes))}: {counted}"
    comms = [instance.nodes[index] for index in instance.of_kind(NodeKind.COMM)]
    types = Counter(collective_kind(node.collective or node.name) for node in comms)
    yield "collectives", ", ".join(f"{n} {kind}" for kind, n in types.most_common()) or "none"
    groups = Counter(instance.group_of(index) for index in instance.of_kind(NodeKind.COMM))
    if len(groups) > 1:
        named = (f"{group} ({_counted(n, 'collective')})" for group, n in groups.items())
        yield "process groups", ", ".join(named)


def _counted(count: int, word: str) -> str:
    return f"{figure(count)} {word}" + ("" if count == 1 else "s")


def _limits(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    frozen = instance.collective_order == "frozen"
    yield (
        "collective order",
        "frozen: as in the program, per group" if frozen else "free: one order per group",
    )
    caps = [(group, instance.cap_of(group)) for group in instance.groups]
    if isinstance(instance.max_in_flight, dict):
        named = ", ".join(f"{group}: {cap}" for group, cap in caps if cap is not None)
        yield "max in flight", named
    else:
        yield "max in flight", limited(instance.max_in_flight)
    cap = instance.max_live_bytes
    yield "max live bytes", limited(None if cap is None else float(cap))
    then = ", then peak of live bytes" if instance.objective != "makespan" else ""
    yield "objective", f"makespan{then}"


def _totals(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    unit = instance.time_unit
    compute = _total(instance, instance.of_kind(NodeKind.COMPUTE))
    comm = _total(instance, instance.of_kind(NodeKind.COMM))
    yield "compute", f"{figure(float(compute))} {unit}"
    yield "communication", f"{figure(float(comm))} {unit}"
    if len(instance.groups) > 1:
        for group in instance.groups:
            own = [i for i in instance.of_kind(NodeKind.COMM) if instance.group_of(i) == group]
            yield f"  group {group}", f"{figure(float(_total(instance, own)))} {unit}"
    yield "comm / compute", f"{comm / compute:.2f}" if compute else ABSENT
    path = _critical_path(instance)
    longest = f"{figure(float(path))} {unit}"
    share = f"  ({percent(float(path / (compute + comm)))} of all work)" if compute + comm else ""
    yield "critical path", longest + share


def _total(instance: OverlapInstance, nodes: list[int]) -> Decimal:
    return sum((Decimal(instance.nodes[index].duration) for index in nodes), Decimal(0))


def _critical_path(instance: OverlapInstance) -> Decimal:
    """Return the longest chain of dependencies, frozen collectives following each other."""
    frozen = instance.collective_order == "frozen"
    end: list[Decimal] = []
    for index, node in enumerate(instance.nodes):
        before = [end[dep] for dep in instance.deps[index]]
        if frozen and index in instance.previous_in_group:
            before.append(end[instance.previous_in_group[index]])
        end.append(max(before, default=Decimal(0)) + Decimal(node.duration))
    return max(end, default=Decimal(0))
