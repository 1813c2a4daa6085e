"""How K-FAC work is drawn: cycles like pipelines, refreshes by device and iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from rich.console import RenderableType
from rich.text import Text

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.result import (
    HeuristicEntry,
    HeuristicStatus,
    Result,
    ScheduleDocument,
    Status,
)
from ppsolve.models.instances import Instance
from ppsolve.models.kfac.instance import KfacInstance, TieBreak
from ppsolve.models.kfac.result import RefreshEntry, RefreshResult, TieBreakEntry, broken_rules
from ppsolve.solver.kfac.kind import is_refresh
from ppsolve.solver.kfac.pattern import pattern_of
from ppsolve.solver.render.beside import distances, heuristic_table
from ppsolve.solver.render.drawing import (
    Drawing,
    Facts,
    ScheduleView,
    described,
    reached,
    sizes,
)
from ppsolve.solver.render.figures import ABSENT, figure, figures, ratio
from ppsolve.solver.render.gantt import Gantt
from ppsolve.solver.render.kfac.description import cycle_devices, cycle_facts, describe_refresh
from ppsolve.solver.render.kfac.view import (
    PipelineRepeats,
    chart_of_refresh,
    device_table,
    repeats_of,
    view_of_refresh,
)
from ppsolve.solver.render.pipeline.drawing import pipeline_shape
from ppsolve.solver.render.tables import TableColumn, facts, table
from ppsolve.solver.render.wording import ITERATIONS, entry_status, separated, spaced, with_unit

BREAKS, IMPOSSIBLE = "*", "!"
PUBLISHED = ("pipefisher", "pipefisher-causal")
"""Heuristics that stay beside the best schedule where space is short."""

MARKS = (BREAKS, IMPOSSIBLE)
"""Marks of iterations that a heuristic claims but breaks rules for."""

MOST_LISTED = 16
"""Devices whose iterations are listed one by one; more are counted."""

_TIE_BREAKS = {
    TieBreak.STALENESS: "total completion time of inversions",
    TieBreak.USAGE: "total completion time of all K-FAC work",
    TieBreak.NONE: "nothing",
}


class KfacDrawing(Drawing):
    """A refresh has its own tables and views; a cycle is drawn as any schedule is."""

    def facts(self, result: Result, instance: Instance | None) -> Facts:
        """Yield the figures of a result."""
        if not isinstance(result, RefreshResult):
            yield from super().facts(result, instance)
            return
        yield from reached(result)
        if result.bubble_ratio is not None:
            yield "bubble ratio", ratio(result.bubble_ratio)
        if result.tie_break is not None:
            yield _tie_break(result.tie_break, result.time_unit)

    def period(self, instance: Instance) -> float | None:
        """Return the length of an iteration of a refresh, in the instance's unit."""
        known = cast("KfacInstance", instance)
        if not is_refresh(known):
            return None
        pattern = pattern_of(known)
        return pattern.scale.time(pattern.period)

    def parts(self, found: Result | HeuristicEntry, unit: str) -> Iterator[RenderableType]:
        """Yield the table of devices of a refresh."""
        bounds = found.bound_of if isinstance(found, RefreshResult) else None
        if isinstance(found, RefreshResult | RefreshEntry) and (found.iterations_of or bounds):
            yield device_table(found, unit)

    def heuristics(
        self, entries: Sequence[HeuristicEntry], result: Result, *, verbose: bool
    ) -> Iterator[RenderableType]:
        """Yield the table of heuristics."""
        if not isinstance(result, RefreshResult):
            yield from super().heuristics(entries, result, verbose=verbose)
            return
        refreshes = [cast("RefreshEntry", entry) for entry in entries]
        status = [_status(entry, result, verbose=verbose) for entry in refreshes]
        yield heuristic_table(
            refreshes,
            result,
            TableColumn(
                "per device",
                [per_device(entry.iterations_of) for entry in refreshes],
                is_text=True,
                expendable=1,
            ),
            *distances(refreshes, result, expendable=2),
            TableColumn("status", status, is_text=True, wraps=True),
        )

    def notes(self, result: Result, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the rules that heuristics of a refresh break."""
        if isinstance(result, RefreshResult):
            for entry in result.heuristics:
                yield from _claims(entry, result)

    def reason(self, entry: HeuristicEntry) -> str:
        """Return the rules that a heuristic breaks, counted."""
        if isinstance(entry, RefreshEntry) and entry.breaks:
            return f"breaks rules: {broken_rules(entry.breaks)}"
        return super().reason(entry)

    def entry_facts(self, entry: HeuristicEntry, instance: Instance) -> Facts:
        """Yield the figures of one heuristic on an instance."""
        if not isinstance(entry, RefreshEntry):
            yield from super().entry_facts(entry, instance)
            return
        unit = instance.time_unit
        if entry.breaks:
            yield "breaks", broken_rules(entry.breaks)
            yield "first", separated((entry.reason or "").rpartition("; first ")[2], unit)
        elif entry.reason:
            yield "reason", separated(entry.reason, unit)
        if entry.makespan is not None:
            yield "ends after", f"{figure(entry.makespan)} {unit}"
            yield "bubble ratio", ratio(entry.bubble_ratio)

    def describe(self, instance: Instance, problem: Problem) -> RenderableType:
        """Return the pipeline of an instance, its bubbles, and the work to hide in them."""
        given = cast("KfacInstance", instance)
        if is_refresh(given):
            return describe_refresh(given, pattern_of(given))
        assert given.pipeline is not None
        rows = [*pipeline_shape(given.pipeline), *cycle_facts(given), *sizes(problem)]
        return described(given, rows, devices=cycle_devices(problem))

    def recognises(self, document: ScheduleDocument) -> bool:
        """Whether ops of the schedule are repeated by iteration."""
        return repeats_of(document) is not None

    def chart(self, shown: ScheduleView) -> Gantt:
        """Return the chart of the iterations of a refresh, or of a cycle."""
        repeats = _repeats(shown)
        return super().chart(shown) if repeats is None else chart_of_refresh(shown, repeats)

    def drawn(self, shown: ScheduleView) -> RenderableType:
        """Return the iterations of a refresh, or the chart of a cycle."""
        repeats = _repeats(shown)
        return super().drawn(shown) if repeats is None else view_of_refresh(shown, repeats)

    def comparison(
        self, results: Sequence[Result], *, fold_names: bool
    ) -> Iterator[RenderableType]:
        """Yield the iterations of each device, by heuristic, at best and at least."""
        refreshes = [result for result in results if isinstance(result, RefreshResult)]
        if not refreshes:
            return
        names = dict.fromkeys(entry.name for one in refreshes for entry in one.heuristics)
        found = [{entry.name: _marked(entry, one) for entry in one.heuristics} for one in refreshes]
        instances = [one.instance for one in refreshes]
        best = [per_device(one.iterations_of) for one in refreshes]
        bounds = [per_device(one.bound_of) for one in refreshes]
        yield table(
            TableColumn("iterations\nper device", instances, is_text=True, wraps=fold_names),
            *(
                TableColumn(
                    name.replace("-", "-\n", 1),
                    [by_name.get(name, ABSENT) for by_name in found],
                    is_text=True,
                    expendable=0 if name in PUBLISHED else 2,
                )
                for name in names
            ),
            TableColumn("best", best, is_text=True),
            TableColumn("bound", bounds, is_text=True, expendable=1),
        )
        if any(mark in text for by_name in found for text in by_name.values() for mark in MARKS):
            note = f"{BREAKS} breaks rules there, {IMPOSSIBLE} fewer than the proven bound"
            yield Text(note, "dim")


def _repeats(shown: ScheduleView) -> PipelineRepeats | None:
    """Return the iterations of a refresh, None where the schedule is none of a refresh."""
    given, period = cast("KfacInstance | None", shown.instance), None
    if given is not None and shown.problem is not None:
        if not is_refresh(given):
            return None
        period = float(shown.problem.scale.time(pattern_of(given).period))
    return repeats_of(shown.document, period)


def _tie_break(tie: TieBreakEntry, unit: str) -> tuple[str, str]:
    value, bound = figures(tie.value, tie.bound)
    proof = "proven least" if value == bound else f"at least {bound} {unit}"
    return tie.name.value, f"{value} {unit}, {proof} ({_TIE_BREAKS[tie.name]})"


def _status(entry: RefreshEntry, result: RefreshResult, *, verbose: bool) -> str:
    if not verbose and entry.breaks:
        return spaced(entry.status)
    return entry_status(entry, result, verbose=verbose)


def per_device(counts: Sequence[int] | None, marks: Sequence[str] = ()) -> str:
    """Return the iterations of each device: ``9 8 8 9``, ``all 2``, or the range of many.

    Parameters
    ----------
    counts : sequence of int, optional
        Iterations of each device.
    marks : sequence of str
        Signs behind the counts of the first devices.

    Returns
    -------
    str
        The counts; a dash if there are none.
    """
    if not counts:
        return ABSENT
    texts = [str(count) for count in counts]
    for device, mark in enumerate(marks):
        texts[device] += mark
    if len(texts) > 2 and len(set(texts)) == 1:
        return f"all {texts[0]}"
    if len(counts) > MOST_LISTED:
        return f"{min(counts)} to {max(counts)}"
    return " ".join(texts)


def impossible_devices(entry: RefreshEntry, result: RefreshResult) -> list[int]:
    """Return the devices on which a heuristic needs rules broken to beat the proven bound.

    Parameters
    ----------
    entry : RefreshEntry
        The heuristic.
    result : RefreshResult
        Holds what is proved of each device.

    Returns
    -------
    list of int
        Numbers of the devices, ascending.
    """
    if entry.status is not HeuristicStatus.INFEASIBLE or not result.bound_of:
        return []
    counts, breaks = entry.iterations_of or [], entry.breaks_of or []
    unaligned = bool((entry.breaks or {}).get("sync_not_aligned"))
    pairs = zip(counts, result.bound_of, strict=False)
    return [
        device
        for device, (count, bound) in enumerate(pairs)
        if count < bound and (unaligned or (device < len(breaks) and breaks[device]))
    ]


def _claims(entry: RefreshEntry, result: RefreshResult) -> Iterator[RenderableType]:
    """Yield the rules that a heuristic breaks, and what it claims that is proved impossible."""
    if not entry.breaks:
        return
    yield Text()
    yield Text(f"{entry.name} breaks rules: {broken_rules(entry.breaks)}", "yellow")
    if result.status is Status.INFEASIBLE:
        claimed = with_unit(figure(entry.value), ITERATIONS)
        yield Text(f"  {claimed} claimed, impossible: there is no valid schedule", "bold red")
    devices = impossible_devices(entry, result)
    if devices:
        yield Text("  and claims fewer iterations than any valid schedule has:", "bold red")
        yield facts((f"  device {device}", _claim(entry, result, device)) for device in devices)


def _claim(entry: RefreshEntry, result: RefreshResult, device: int) -> str:
    counts, bounds, by = entry.iterations_of or [], result.bound_of or [], result.bounds_by or []
    breaks = (entry.breaks_of or [])[device] or {
        rule: count for rule, count in (entry.breaks or {}).items() if rule == "sync_not_aligned"
    }
    claimed = with_unit(str(counts[device]), ITERATIONS)
    proof = f" (proved by {by[device]})" if device < len(by) else ""
    return (
        f"{claimed} claimed, impossible: {broken_rules(breaks)}; "
        f"at least {with_unit(str(bounds[device]), ITERATIONS)}{proof}"
    )


def _marked(entry: RefreshEntry, result: RefreshResult) -> str:
    impossible = impossible_devices(entry, result)
    marks = [
        (IMPOSSIBLE if device in impossible else BREAKS) if rules else ""
        for device, rules in enumerate(entry.breaks_of or [])
    ]
    return per_device(entry.iterations_of, marks)
