"""How programs of kernels and collectives are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from rich.console import RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.models.kinds.overlap.instance import NodeKind, OverlapInstance
from ppsolve.models.kinds.overlap.result import ExposedCollective, OverlapEntry, OverlapResult
from ppsolve.solver.kinds.overlap.passes import RAISE_FAILURE
from ppsolve.solver.views.chart import AmountCurve
from ppsolve.solver.views.colours import KERNEL_KIND
from ppsolve.solver.views.drawing import (
    Drawing,
    Facts,
    described,
    reached,
)
from ppsolve.solver.views.figures import ABSENT, figure
from ppsolve.solver.views.overlap.view import (
    collective_kind,
    exposed_text,
    program_facts,
    program_of,
    program_shape,
    report_of_program,
)
from ppsolve.solver.views.schedule_view import ScheduleReport, ScheduleView
from ppsolve.solver.views.tables import Field, FittingTable, TableColumn, indented
from ppsolve.solver.views.wording import separated


class OverlapDrawing(Drawing):
    """Programs have streams, waits, and curves of what is in flight and held."""

    def summary(self, result: Result) -> str:
        """Return the exposed communication."""
        if not isinstance(result, OverlapResult) or result.exposed_wait is None:
            return ""
        return f", exposed {exposed_text(result, result.makespan, result.time_unit)}"

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield the figures of a result."""
        found, program = cast("OverlapResult", result), cast("OverlapInstance | None", instance)
        yield from reached(found)
        least = found.least_peak_bytes
        yield from program_facts(found, found.makespan, found.time_unit, program, least)

    def kinds_of_ops(self, instance: Instance, problem: Problem) -> list[str]:
        """Return the kind of each op: kernels, and collectives by their type."""
        found = super().kinds_of_ops(instance, problem)
        for op, node in enumerate(cast("OverlapInstance", instance).nodes):
            if node.kind == NodeKind.COMPUTE:
                found[op] = KERNEL_KIND
            elif node.kind == NodeKind.COMM:
                found[op] = collective_kind(node.collective or node.name)
        return found

    def curves(self, found: Result | HeuristicEntry, schedule: Schedule) -> list[AmountCurve]:
        """Return the curves of collectives in flight and bytes held, counted along the program."""
        if not isinstance(found, OverlapResult):
            return []
        tick = schedule.problem.scale.tick
        curves = {"in flight": found.in_flight_curve, "live bytes": found.live_bytes_curve}
        return [
            AmountCurve(name, [(float(time) / float(tick), amount) for time, amount in curve])
            for name, curve in curves.items()
            if curve
        ]

    def fields(self, result: Result, *, verbose: bool) -> Sequence[Field[Any]]:
        """Return columns of exposed communication and of the compiler's estimates."""
        found: tuple[Field[Any], ...] = (
            Field("exposed", lambda entry: entry.exposed_wait, 0, figure),
            Field("own\nestimate", lambda entry: entry.estimate, 2, figure),
            Field("older\nestimate", lambda entry: entry.estimate_seed, 3, figure),
        )
        return found if verbose else found[:2]

    def notes(self, result: Result, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the collectives that are not hidden."""
        exposed = cast("OverlapResult", result).exposed
        if not exposed:
            return
        shown = exposed if verbose else exposed[:5]
        causes = [_because(one, verbose=verbose) for one in shown]
        found = FittingTable(
            TableColumn("exposed collective", [one.name for one in shown], is_text=True),
            TableColumn("waited", [f"{figure(one.waited)} {result.time_unit}" for one in shown]),
            TableColumn("because of", causes, is_text=True, wraps=True),
        )
        hidden = len(exposed) - len(shown)
        more = f"and {hidden} more (--verbose lists them); " if hidden else ""
        note = f"{more}in a chain each node starts when the one before it ends"
        yield from (Text(), indented(found), indented(Text(note, "dim")))

    def reason(self, entry: HeuristicEntry, *, verbose: bool = True) -> str:
        """Return why a pass fails, in plain words."""
        own = f" ({RAISE_FAILURE.partition(': ')[2]})" if verbose else ""
        plain = f"raise_comms: several collectives left to come first{own}"
        return super().reason(entry, verbose=verbose).replace(RAISE_FAILURE, plain)

    def entry_facts(self, entry: HeuristicEntry, instance: Instance) -> Facts:
        """Yield the figures of one heuristic on a program."""
        unit, found = instance.time_unit, cast("OverlapEntry", entry)
        if entry.reason:
            yield "reason", separated(self.reason(entry), unit)
        if entry.makespan is not None:
            yield "makespan", f"{figure(entry.makespan)} {unit}"
        program = cast("OverlapInstance", instance)
        yield from program_facts(found, entry.makespan, unit, program)
        if found.estimate is not None:
            older = found.estimate_seed
            failed = "none: two collectives run at the same time"
            yield "older estimate", failed if older is None else f"{figure(older)} {unit}"

    def describe(self, instance: Instance, problem: Problem) -> RenderableType:
        """Return a program in short, with a hint at further commands."""
        rows = list(program_shape(cast("OverlapInstance", instance)))
        return described(instance, rows, "a program of kernels and collectives")

    def view(self, shown: ScheduleView) -> ScheduleReport:
        """Return the streams of a program, with what is in flight and held."""
        if shown.schedule is None:
            return super().view(shown)
        shown.frame.refuse_iterations()
        return report_of_program(shown)

    def warning(self, shown: ScheduleView) -> str | None:
        """Return a warning if the order of a result does not run as its schedule."""
        source, program = shown.source, cast("OverlapInstance", shown.instance)
        order = source.order if isinstance(source, OverlapResult | OverlapEntry) else None
        assert shown.schedule is not None
        if order is None or program_of(program, shown.schedule, order) is not None:
            return None
        return "its order does not run as its schedule; the schedule is drawn"


def _because(collective: ExposedCollective, *, verbose: bool) -> str:
    chain = collective.because
    if not chain:
        return ABSENT
    cut = 0 if verbose else max(len(chain) - 4, 0)
    return " > ".join([*(["..."] if cut else []), *chain[cut:]])
