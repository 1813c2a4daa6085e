"""How programs of kernels and collectives are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from rich.console import RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result, ScheduleDocument
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.instances import Instance
from ppsolve.models.overlap.instance import OverlapInstance
from ppsolve.models.overlap.result import OverlapEntry, OverlapResult
from ppsolve.solver.overlap.passes import STABLE
from ppsolve.solver.render.drawing import Drawing, Facts, Shown, described, reached
from ppsolve.solver.render.overlap.description import program_shape
from ppsolve.solver.render.overlap.report import (
    exposed_text,
    most_exposed,
    overlap_entry_facts,
    overlap_heuristics,
    plain_failure,
    program_comparison,
    program_facts,
)
from ppsolve.solver.render.overlap.rows import is_overlap_document
from ppsolve.solver.render.overlap.view import program_of, view_of_program
from ppsolve.solver.render.wording import separated


class OverlapDrawing(Drawing):
    """Programs have streams, waits, and curves of what is in flight and held."""

    def summary(self, result: Result) -> str:
        """Return the exposed communication."""
        if not isinstance(result, OverlapResult) or result.exposed_wait is None:
            return ""
        return f", exposed {exposed_text(result, result.makespan, result.time_unit)}"

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield what a result has reached."""
        found, program = cast("OverlapResult", result), cast("OverlapInstance | None", instance)
        yield from reached(found)
        least = found.least_peak_bytes
        yield from program_facts(found, found.makespan, found.time_unit, program, least)

    def heuristics(
        self, entries: Sequence[HeuristicEntry], result: Result, *, verbose: bool
    ) -> Iterator[RenderableType]:
        """Yield the table of heuristics, and why some have no valid order."""
        found = cast("OverlapResult", result)
        shown = [e for e in entries if verbose or e.status is not HeuristicStatus.NOT_APPLICABLE]
        yield from overlap_heuristics(shown, found, verbose=verbose)

    def notes(self, result: Result, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the collectives that are not hidden."""
        found = cast("OverlapResult", result)
        if found.exposed:
            yield Text()
            yield from most_exposed(found, verbose=verbose)

    def reason(self, entry: HeuristicEntry) -> str:
        """Return why a pass fails, in plain words."""
        reason = super().reason(entry)
        return plain_failure(reason) if entry.status is HeuristicStatus.FAILED else reason

    def entry_facts(self, entry: HeuristicEntry, instance: Instance) -> Facts:
        """Yield what one heuristic makes of a program."""
        unit, found = instance.time_unit, cast("OverlapEntry", entry)
        if entry.reason:
            yield "reason", separated(self.reason(entry), unit)
        yield from overlap_entry_facts(found, unit, cast("OverlapInstance", instance))

    def describe(self, instance: Instance, problem: Problem) -> RenderableType:
        """Return what a program consists of, and what can be done with it."""
        rows = list(program_shape(cast("OverlapInstance", instance)))
        return described(instance, rows, "a program of kernels and collectives")

    def recognises(self, document: ScheduleDocument) -> bool:
        """Whether ops are kernels and collectives."""
        return is_overlap_document(document)

    def drawn(self, shown: Shown) -> RenderableType:
        """Return the streams of a program, with what is in flight and held."""
        shown.frame.refuse_iterations()
        return view_of_program(shown)

    def warning(
        self,
        instance: Instance,
        schedule: Schedule,
        source: Result | HeuristicEntry | None,
    ) -> str | None:
        """Return that the program order of a result does not run as its schedule, if so."""
        order = source.order if isinstance(source, OverlapResult | OverlapEntry) else None
        program = cast("OverlapInstance", instance)
        if order is None or program_of(program, schedule, order) is not None:
            return None
        return "its order does not run as its schedule; the schedule is drawn"

    def comparison(
        self, results: Sequence[Result], *, fold_names: bool
    ) -> Iterator[RenderableType]:
        """Yield what is exposed and held by the best orders, and by the default passes."""
        yield program_comparison([cast("OverlapResult", r) for r in results], fold_names)

    def is_repeated(self, name: str, results: Sequence[Result]) -> bool:
        """Whether a variant that does not depend on names does what its original does."""
        base = name.removesuffix(STABLE)
        if base == name:
            return False
        reached = [
            {e.name: (e.status, e.value) for e in result.heuristics if e.name in {name, base}}
            for result in results
        ]
        return all(found.get(name) == found.get(base) for found in reached)
