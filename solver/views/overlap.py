"""How programs of kernels and collectives are drawn: streams, waits, what is in flight."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import starmap
from typing import Any, cast

from rich.console import RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import (
    HeuristicEntry,
    Result,
    ScheduleDocument,
    ScheduledOp,
)
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.overlap.instance import OverlapInstance
from ppsolve.models.kinds.overlap.labels import NodeKind
from ppsolve.models.kinds.overlap.result import (
    OverlapEntry,
    OverlapResult,
    ProgramFigures,
)
from ppsolve.solver.kinds.overlap.passes import RAISE_FAILURE
from ppsolve.solver.kinds.overlap.replay import is_valid_order, live_bytes
from ppsolve.solver.kinds.overlap.report import ProgramReport
from ppsolve.solver.views.chart import AmountCurve, Bar, Chart, Row
from ppsolve.solver.views.colours import (
    COLLECTIVE_KIND,
    KERNEL_KIND,
    WAIT_KIND,
    letter_of,
)
from ppsolve.solver.views.drawing import Drawing, Facts, described, reached
from ppsolve.solver.views.figures import ABSENT, counted, figure, figures, percent
from ppsolve.solver.views.schedule_view import ScheduleReport, ScheduleView, busy_table
from ppsolve.solver.views.tables import Field, FittingTable, TableColumn, indented
from ppsolve.solver.views.time_units import readable_times

# Parts of the names of collectives, the more telling ones first.
_TYPES = {
    "reducescatter": "reduce-scatter",
    "scatter": "reduce-scatter",
    "allreduce": "all-reduce",
    "alltoall": "all-to-all",
    "gather": "all-gather",
}


def collective_kind(text: str) -> str:
    """Return the type of a collective: ``all_gather_into_tensor`` is an ``all-gather``."""
    letters = re.sub("[^a-z]", "", text.lower())
    return next(
        (kind for fragment, kind in _TYPES.items() if fragment in letters),
        COLLECTIVE_KIND,
    )


def stream_rows(document: ScheduleDocument, instance: OverlapInstance) -> list[Row]:
    """Return the row of the compute stream, then one per comm stream; added ops are left out."""
    ops = sorted(document.ops, key=lambda op: (op.start, op.end))
    kernels = [_bar(op, KERNEL_KIND) for op in ops if op.kind == NodeKind.COMPUTE]
    moments = [op.end for op in ops if op.kind == NodeKind.WAIT]
    rows = [Row("compute", True, [*_shaded(kernels), *held(kernels, moments)])]
    bars_of: dict[str, list[Bar]] = {group: [] for group in instance.groups}
    for op in ops:
        if op.kind == NodeKind.COMM:
            node = instance.nodes[instance.index_of[op.id]]
            kind = collective_kind(node.collective or op.id)
            bar = replace(_bar(op, kind), letter=letter_of(kind))
            bars_of[instance.group_of(instance.index_of[op.id])].append(bar)
    for group, bars in bars_of.items():
        name = f"comm {group}" if len(bars_of) > 1 else "comm"
        rows.append(Row(name, True, list(_shaded(bars))))
    return rows


def held(kernels: Sequence[Bar], moments: Iterable[float]) -> Iterator[Bar]:
    """Yield the time for which waits hold the compute stream.

    Before the moment at which a wait lets it go on, the stream is idle only because of the wait.
    Kernels are by start, moments ascending.
    """
    clock, following = 0.0, 0
    for moment in moments:
        while following < len(kernels) and kernels[following].start < moment:
            clock = max(clock, kernels[following].end)
            following += 1
        if moment > clock:
            yield Bar(clock, moment, WAIT_KIND, "w", "w")
            clock = moment


def _bar(op: ScheduledOp, kind: str) -> Bar:
    letter = next((char.upper() for char in op.id if char.isalnum()), "?")
    return Bar(op.start, op.end, kind, letter, op.id)


def _shaded(bars: Iterable[Bar]) -> Iterator[Bar]:
    for number, bar in enumerate(bars):
        digits = re.search(r"\d.*", bar.label)
        short = bar.letter + (digits[0] if digits else "")
        yield replace(bar, short=short, shade=number % 2)


def _counts(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    count = Counter(node.kind for node in instance.nodes)
    words = {
        NodeKind.COMPUTE: KERNEL_KIND,
        NodeKind.COMM: COLLECTIVE_KIND,
        NodeKind.WAIT: WAIT_KIND,
    }
    kinds = ", ".join(counted(count[kind], word) for kind, word in words.items())
    yield "nodes", f"{figure(len(instance.nodes))}: {kinds}"
    comms = [instance.nodes[index] for index in instance.of_kind(NodeKind.COMM)]
    types = Counter(collective_kind(node.collective or node.name) for node in comms)
    yield (
        "collectives",
        ", ".join(f"{n} {kind}" for kind, n in types.most_common()) or "none",
    )
    groups = Counter(
        instance.group_of(index) for index in instance.of_kind(NodeKind.COMM)
    )
    if len(groups) > 1:
        named = (f"{group} ({counted(n, 'collective')})" for group, n in groups.items())
        yield "process groups", ", ".join(named)


def _limits(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    frozen = instance.collective_order == "frozen"
    order = (
        "frozen: as in the program, per group"
        if frozen
        else "free: one order per group"
    )
    yield "collective order", order
    caps = [(group, instance.cap_of(group)) for group in instance.groups]
    if isinstance(instance.max_in_flight, dict):
        named = ", ".join(f"{group}: {cap}" for group, cap in caps if cap is not None)
        yield "max in flight", named
    else:
        yield "max in flight", _limited(instance.max_in_flight)
    cap = instance.max_live_bytes
    yield "max live bytes", _limited(None if cap is None else float(cap))
    then = ", then peak of live bytes" if instance.objective != "makespan" else ""
    yield "objective", f"makespan{then}"


def _totals(instance: OverlapInstance) -> Iterator[tuple[str, str]]:
    compute = _total(instance, instance.of_kind(NodeKind.COMPUTE))
    comm = _total(instance, instance.of_kind(NodeKind.COMM))
    for name, time in (("compute", compute), ("communication", comm)):
        (text,), unit = readable_times(instance.time_unit, float(time))
        yield name, f"{text} {unit}"
    yield "comm / compute", f"{comm / compute:.2f}" if compute else ABSENT


def _total(instance: OverlapInstance, nodes: list[int]) -> Decimal:
    return sum((Decimal(instance.nodes[index].duration) for index in nodes), Decimal(0))


def program_facts(
    program: ProgramFigures,
    makespan: float | None,
    unit: str,
    instance: OverlapInstance | None = None,
    least_peak: float | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield names and values of a program order, values with their units.

    Waits are a share of the makespan; `least_peak` is a proven bound on the peak of live bytes.
    """
    if program.exposed_wait is not None:
        yield "exposed", exposed_text(program, makespan, unit)
    if program.max_in_flight is not None:
        yield "max in flight", f"{program.max_in_flight}{_flight_cap(instance)}"
    is_capped = instance is not None and instance.max_live_bytes is not None
    if program.peak_live_bytes is not None and (program.peak_live_bytes or is_capped):
        yield "peak live bytes", _peak(program.peak_live_bytes, instance, least_peak)
    if program.estimate is not None:
        (estimate,), shown = readable_times(unit, program.estimate)
        yield "own estimate", f"{estimate} {shown} (Inductor's figure, not the time)"


def exposed_text(program: ProgramFigures, makespan: float | None, unit: str) -> str:
    """Return the exposed communication with its unit, and its share of the makespan."""
    wait = program.exposed_wait
    share = f", {percent(wait / makespan)} of the makespan" if wait and makespan else ""
    (text,), shown = readable_times(unit, wait)
    return f"{text} {shown}{share}"


def _limited(cap: float | None) -> str:
    return "no limit" if cap is None else figure(cap)


def _flight_cap(instance: OverlapInstance | None) -> str:
    groups = () if instance is None else instance.groups
    caps = {group: instance.cap_of(group) for group in groups} if instance else {}
    per_group = " per group" if len(groups) > 1 else ""
    if len(set(caps.values())) > 1:
        named = (f"{group}: {_limited(cap)}" for group, cap in caps.items())
        return f"{per_group} ({', '.join(named)})"
    cap = next(iter(caps.values()), None)
    return per_group if cap is None else f" of {cap}{per_group}"


def _peak(
    peak: float, instance: OverlapInstance | None, least_peak: float | None
) -> str:
    cap = None if instance is None else instance.max_live_bytes
    texts = figures(peak, None if cap is None else float(cap), least_peak)
    text = texts[0] + ("" if cap is None else f" of {texts[1]}")
    if least_peak is None:
        return text
    proof = "proven least" if peak == least_peak else f"at least {texts[2]}"
    return f"{text} ({proof} at this makespan)"


def report_of_program(view: ScheduleView) -> ScheduleReport:
    """Return the report on a program: its streams, what is in flight and what is held.

    Without a source whose program order runs as the schedule, what is in flight is not known.
    """
    instance, schedule = (
        cast("OverlapInstance", view.instance),
        cast("Schedule", view.schedule),
    )
    rows = stream_rows(view.document, instance)
    program = program_of(instance, schedule, getattr(view.source, "order", None))
    if program is not None:
        measures = ProgramFigures.model_validate(program.figures())
        amounts = program.curves()
        points = {
            "in flight": amounts["in_flight_curve"],
            "live bytes": amounts["live_bytes_curve"],
        }
    else:
        waited = sum(
            bar.end - bar.start for bar in rows[0].bars if bar.kind == WAIT_KIND
        )
        count, time = len(instance.nodes), schedule.problem.scale.time
        live = live_bytes(instance, schedule.start[:count], schedule.end[:count])
        measures = ProgramFigures(exposed_wait=waited, peak_live_bytes=float(live.peak))
        held_bytes = zip(map(time, live.times), map(float, live.amounts), strict=True)
        points = {"live bytes": list(held_bytes)}
    curves = [curve for curve in starmap(AmountCurve, points.items()) if curve.most]
    least_peak = getattr(view.source, "least_peak_bytes", None)
    (end,), unit = readable_times(view.unit, view.end)
    makespan = ("makespan", f"{end} {unit}")
    return ScheduleReport(
        view.title,
        Chart(
            rows,
            view.end,
            view.unit,
            view.frame.window,
            curves=curves,
            idle="stream is idle",
        ),
        [makespan, *program_facts(measures, view.end, view.unit, instance, least_peak)],
        busy_table(rows, view.end, view.unit, head="stream"),
    )


def program_of(
    instance: OverlapInstance, schedule: Schedule, order: object
) -> ProgramReport | None:
    """Return the program of an order, if its kernels and collectives start as the schedule says.

    An order that does not list names of nodes has none.
    """
    index = instance.index_of
    if not isinstance(order, list) or not all(
        isinstance(name, str) and name in index for name in order
    ):
        return None
    indices = [index[name] for name in order]
    if not is_valid_order(instance, indices):
        return None
    report = ProgramReport(instance, schedule.problem, indices)
    running = instance.of_kind(NodeKind.COMPUTE) + instance.of_kind(NodeKind.COMM)
    same = (report.schedule.start[running] == schedule.start[running]).all()
    return report if same else None


class OverlapDrawing(Drawing):
    """Programs have streams, waits, and curves of what is in flight and held."""

    def summary(self, result: Result) -> str:
        """Return the exposed communication."""
        if not isinstance(result, OverlapResult) or result.exposed_wait is None:
            return ""
        return f", exposed {exposed_text(result, result.makespan, result.time_unit)}"

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield the figures of a result."""
        answer, program = (
            cast("OverlapResult", result),
            cast("OverlapInstance | None", instance),
        )
        yield from reached(answer)
        yield from program_facts(
            answer,
            answer.makespan,
            answer.time_unit,
            program,
            answer.least_peak_bytes,
        )

    def kinds_of_ops(self, instance: Instance, problem: Problem) -> list[str]:
        """Return the kind of each op: kernels, and collectives by their type."""
        kinds = super().kinds_of_ops(instance, problem)
        for op, node in enumerate(cast("OverlapInstance", instance).nodes):
            if node.kind == NodeKind.COMPUTE:
                kinds[op] = KERNEL_KIND
            elif node.kind == NodeKind.COMM:
                kinds[op] = collective_kind(node.collective or node.name)
        return kinds

    def curves(
        self, source: Result | HeuristicEntry, schedule: Schedule
    ) -> list[AmountCurve]:
        """Return the curves of collectives in flight and bytes held, counted along the program."""
        if not isinstance(source, OverlapResult):
            return []
        tick = float(schedule.problem.scale.tick)
        curves = {
            "in flight": source.in_flight_curve,
            "live bytes": source.live_bytes_curve,
        }
        return [
            AmountCurve(name, [(float(time) / tick, amount) for time, amount in curve])
            for name, curve in curves.items()
            if curve
        ]

    def fields(self, result: Result, *, verbose: bool) -> Sequence[Field[Any]]:
        """Return columns of exposed communication and of the compiler's estimates."""
        columns: tuple[Field[Any], ...] = (
            Field("exposed", lambda entry: entry.exposed_wait, 0, figure),
            Field("own\nestimate", lambda entry: entry.estimate, 2, figure),
            Field("older\nestimate", lambda entry: entry.estimate_seed, 3, figure),
        )
        return columns if verbose else columns[:2]

    def notes(self, result: Result, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the collectives that are not hidden."""
        exposed = cast("OverlapResult", result).exposed
        if not exposed:
            return
        listed = exposed if verbose else exposed[:5]
        causes = [
            _because(collective.because, verbose=verbose) for collective in listed
        ]
        table = FittingTable(
            TableColumn(
                "exposed collective",
                [collective.name for collective in listed],
                is_text=True,
            ),
            TableColumn(
                "waited",
                [
                    f"{figure(collective.waited)} {result.time_unit}"
                    for collective in listed
                ],
            ),
            TableColumn("because of", causes, is_text=True, wraps=True),
        )
        hidden = len(exposed) - len(listed)
        prefix = f"and {hidden} more (--verbose lists them); " if hidden else ""
        note = f"{prefix}in a chain each node starts when the one before it ends"
        yield from (Text(), indented(table), indented(Text(note, "dim")))

    def reason(self, entry: HeuristicEntry, *, verbose: bool = True) -> str:
        """Return why a pass fails, in plain words."""
        rule = f" ({RAISE_FAILURE.partition(': ')[2]})" if verbose else ""
        plain = f"raise_comms: several collectives left to come first{rule}"
        return super().reason(entry, verbose=verbose).replace(RAISE_FAILURE, plain)

    def entry_facts(
        self, entry: HeuristicEntry, instance: Instance, unit: str
    ) -> Facts:
        """Yield the figures of one heuristic on a program."""
        program_entry = cast("OverlapEntry", entry)
        yield from super().entry_facts(entry, instance, unit)
        yield from program_facts(
            program_entry, entry.makespan, unit, cast("OverlapInstance", instance)
        )
        if program_entry.estimate is not None:
            older = program_entry.estimate_seed
            failed = "none: two collectives run at the same time"
            yield (
                "older estimate",
                failed if older is None else f"{figure(older)} {unit}",
            )

    def describe(self, instance: Instance, problem: Problem) -> RenderableType:
        """Return a program in short, with a hint at further commands."""
        program = cast("OverlapInstance", instance)
        rows = [*_counts(program), *_limits(program), *_totals(program)]
        return described(instance, rows, "a program of kernels and collectives")

    def view(self, view: ScheduleView) -> ScheduleReport:
        """Return the streams of a program, with what is in flight and held."""
        return super().view(view) if view.schedule is None else report_of_program(view)

    def warning(self, view: ScheduleView) -> str | None:
        """Return a warning if the order of a result does not run as its schedule."""
        source, program = view.source, cast("OverlapInstance", view.instance)
        order = (
            source.order if isinstance(source, OverlapResult | OverlapEntry) else None
        )
        assert view.schedule is not None
        if order is None or program_of(program, view.schedule, order) is not None:
            return None
        return "its order does not run as its schedule; the schedule is drawn"


def _because(chain: Sequence[str], *, verbose: bool) -> str:
    cut = 0 if verbose else max(len(chain) - 4, 0)
    return " > ".join([*(["..."] if cut else []), *chain[cut:]]) or ABSENT
