"""How K-FAC work is drawn: cycles like pipelines, refreshes by device and iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from rich.console import RenderableType

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import HeuristicEntry, Result, ScheduleDocument
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.instance import KfacInstance
from ppsolve.models.kfac.result import RefreshEntry, RefreshResult, broken_rules
from ppsolve.solver.kfac.kind import is_refresh
from ppsolve.solver.kfac.pattern import pattern_of
from ppsolve.solver.render.drawing import Drawing, Facts, Shown, described, sizes
from ppsolve.solver.render.kfac.description import cycle_devices, cycle_facts, describe_refresh
from ppsolve.solver.render.kfac.report import (
    broken_claims,
    device_table,
    refresh_comparison,
    refresh_entry_facts,
    refresh_facts,
    refresh_heuristics,
)
from ppsolve.solver.render.kfac.view import repeats_of, view_of_refresh
from ppsolve.solver.render.pipeline.drawing import pipeline_shape


class KfacDrawing(Drawing):
    """A refresh has its own tables and views; a cycle is drawn as any schedule is."""

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield what a result has reached."""
        if isinstance(result, RefreshResult):
            return refresh_facts(result)
        return super().facts(result, instance)

    def parts(self, result: Result) -> Iterator[RenderableType]:
        """Yield the table of devices of a refresh."""
        if isinstance(result, RefreshResult) and (result.iterations_of or result.bound_of):
            yield device_table(result, result.time_unit)

    def heuristics(
        self, entries: Sequence[HeuristicEntry], result: Result, *, verbose: bool
    ) -> Iterator[RenderableType]:
        """Yield the table of heuristics."""
        if isinstance(result, RefreshResult):
            yield refresh_heuristics(entries, result, verbose=verbose)
        else:
            yield from super().heuristics(entries, result, verbose=verbose)

    def notes(self, result: Result, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the rules that heuristics of a refresh break."""
        if isinstance(result, RefreshResult):
            yield from broken_claims(result)

    def reason(self, entry: HeuristicEntry) -> str:
        """Return the rules that a heuristic breaks, counted."""
        if isinstance(entry, RefreshEntry) and entry.breaks:
            return f"breaks rules: {broken_rules(entry.breaks)}"
        return super().reason(entry)

    def entry_facts(self, entry: HeuristicEntry, instance: Instance) -> Facts:
        """Yield what one heuristic reaches on an instance."""
        if isinstance(entry, RefreshEntry):
            return refresh_entry_facts(entry, instance.time_unit)
        return super().entry_facts(entry, instance)

    def entry_parts(self, entry: HeuristicEntry, instance: Instance) -> Iterator[RenderableType]:
        """Yield the table of devices of a refresh."""
        if isinstance(entry, RefreshEntry) and entry.iterations_of:
            yield device_table(entry, instance.time_unit)

    def describe(self, instance: Instance, problem: Problem) -> RenderableType:
        """Return the pipeline of an instance, its bubbles, and the work to hide in them."""
        given = cast("KfacInstance", instance)
        if is_refresh(given):
            rounded = problem.scale.worst_relative_error > 0
            return describe_refresh(given, pattern_of(given, round_up=rounded))
        assert given.pipeline is not None
        rows = [*pipeline_shape(given.pipeline), *cycle_facts(given), *sizes(problem)]
        return described(given, rows, devices=cycle_devices(problem))

    def recognises(self, document: ScheduleDocument) -> bool:
        """Whether ops of the schedule are repeated by iteration."""
        return repeats_of(document) is not None

    def drawn(self, shown: Shown) -> RenderableType:
        """Return the iterations of a refresh, or the chart of a cycle."""
        given, period = cast("KfacInstance | None", shown.instance), None
        if given is not None and shown.problem is not None:
            if not is_refresh(given):
                return super().drawn(shown)
            scale = shown.problem.scale
            pattern = pattern_of(given, round_up=scale.worst_relative_error > 0)
            period = float(scale.time(pattern.period))
        repeats = repeats_of(shown.document, period)
        return super().drawn(shown) if repeats is None else view_of_refresh(shown, repeats)

    def comparison(
        self, results: Sequence[Result], *, fold_names: bool
    ) -> Iterator[RenderableType]:
        """Yield the iterations of each device, by heuristic, at best and at least."""
        refreshes = [result for result in results if isinstance(result, RefreshResult)]
        if refreshes:
            yield from refresh_comparison(refreshes, fold_names=fold_names)
