"""Tables over many results: every instance, then every heuristic over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result, Status
from ppsolve.models.kfac.result import RefreshEntry, RefreshResult
from ppsolve.models.overlap.result import OverlapEntry, OverlapResult
from ppsolve.solver.overlap.passes import STABLE
from ppsolve.solver.render.figures import ABSENT, figure, figures, percent, seconds
from ppsolve.solver.render.kfac.report import impossible_devices, per_device
from ppsolve.solver.render.tables import Column, FittingTable
from ppsolve.solver.render.wording import ITERATIONS, value_unit, with_unit

BREAKS, IMPOSSIBLE = "*", "!"
PUBLISHED = ("pipefisher", "pipefisher-causal")
"""Heuristics that stay beside the best schedule where space is short."""

COMPILED = ("original", "inductor-default")
"""Orders that the best one is compared with: the program's and the compiler's."""

MARKS = (BREAKS, IMPOSSIBLE)
"""Marks of iterations that a heuristic claims but breaks rules for."""


def comparison(results: Sequence[Result], *, fold_names: bool = False) -> RenderableType:
    """Return the table of instances, the table of heuristics and a line of totals.

    Parameters
    ----------
    results : sequence of Result
        One row each.
    fold_names : bool
        Continue long names on the next line instead of cutting them off.
    """
    proven = sum(result.status is Status.OPTIMAL for result in results)
    total = sum(result.wall_seconds for result in results)
    closed = sum(_is_closed_by_heuristic(result) for result in results)
    summary = (
        f"{len(results)} instances: {proven} proven optimal, {closed} of them reached by a "
        f"heuristic; {seconds(total)}"
    )
    parts = [_instances(results, fold_names), Text(), _heuristics(results), Text()]
    refreshes = [result for result in results if isinstance(result, RefreshResult)]
    if refreshes:
        parts += [*_refreshes(refreshes, fold_names), Text()]
    programs = [result for result in results if isinstance(result, OverlapResult)]
    if programs:
        parts += [_programs(programs, fold_names), Text()]
    return Group(*parts, Text(summary))


def _instances(results: Sequence[Result], fold_names: bool) -> RenderableType:
    table = FittingTable(
        Column("instance", is_text=True, wraps=fold_names),
        Column("status", is_text=True, expendable=1),
        Column("best"),
        Column("bound", expendable=5),
        Column("gap"),
        Column("best heuristic", is_text=True, expendable=2),
        Column("its gap", expendable=3),
        Column("time", expendable=4),
    )
    names_units = len({unit for unit in map(_unit, results) if unit != ITERATIONS}) > 1
    for result in results:
        entry = best_entry(result)
        best, bound = figures(result.value, result.bound)
        if result.value is not None and (names_units or _unit(result) == ITERATIONS):
            best = with_unit(best, _unit(result))
        table.add_row(
            result.instance,
            result.status.value,
            best,
            bound,
            percent(result.gap),
            entry.name if entry else ABSENT,
            percent(entry.gap) if entry else ABSENT,
            seconds(result.wall_seconds),
        )
    return table


def _programs(results: Sequence[OverlapResult], fold_names: bool) -> RenderableType:
    """Return what is exposed and held by the best program orders, and by the default passes."""
    table = FittingTable(
        Column("program", is_text=True, wraps=fold_names),
        Column("exposed"),
        Column("of\nmakespan"),
        Column("max in\nflight", expendable=1),
        Column("peak live\nbytes", expendable=2),
        *(Column(f"exposed,\n{name}", expendable=3) for name in COMPILED),
    )
    for result in results:
        wait, makespan = result.exposed_wait, result.makespan
        table.add_row(
            result.instance,
            figure(wait),
            percent(wait / makespan) if wait is not None and makespan else ABSENT,
            figure(result.max_in_flight),
            figure(result.peak_live_bytes),
            *(_exposed(result, name) for name in COMPILED),
        )
    return table


def _exposed(result: OverlapResult, name: str) -> str:
    entry = next((entry for entry in result.heuristics if entry.name == name), None)
    if not isinstance(entry, OverlapEntry):
        return ABSENT
    if entry.status is HeuristicStatus.FEASIBLE:
        return figure(entry.exposed_wait)
    return entry.status.value.replace("_", " ")


def _unit(result: Result) -> str:
    return value_unit(result.objective, result.time_unit)


def _refreshes(results: Sequence[RefreshResult], fold_names: bool) -> Iterator[RenderableType]:
    """Yield the iterations of each device by heuristic, at best, and at least."""
    names = dict.fromkeys(entry.name for result in results for entry in result.heuristics)
    table = FittingTable(
        Column("iterations\nper device", is_text=True, wraps=fold_names),
        *(
            Column(
                name.replace("-", "-\n", 1), is_text=True, expendable=2 * (name not in PUBLISHED)
            )
            for name in names
        ),
        Column("best", is_text=True),
        Column("bound", is_text=True, expendable=1),
    )
    marked = False
    for result in results:
        by_name = {entry.name: _marked(entry, result) for entry in result.heuristics}
        marked = marked or any(mark in text for text in by_name.values() for mark in MARKS)
        table.add_row(
            result.instance,
            *(by_name.get(name, ABSENT) for name in names),
            per_device(result.iterations_of),
            per_device(result.bound_of),
        )
    yield table
    if marked:
        yield Text(f"{BREAKS} breaks rules there, {IMPOSSIBLE} fewer than the proven bound", "dim")


def _marked(entry: HeuristicEntry, result: RefreshResult) -> str:
    if not isinstance(entry, RefreshEntry):
        return ABSENT
    impossible = impossible_devices(entry, result)
    marks = [
        (IMPOSSIBLE if device in impossible else BREAKS) if rules else ""
        for device, rules in enumerate(entry.breaks_of or [])
    ]
    return per_device(entry.iterations_of, marks)


def best_entry(result: Result) -> HeuristicEntry | None:
    """Return the feasible heuristic entry with the smallest value, the first one of equals."""
    feasible = [entry for entry in _feasible(result) if entry.value is not None]
    return min(feasible, key=lambda entry: entry.value or 0, default=None)


def _feasible(result: Result) -> Iterator[HeuristicEntry]:
    return (entry for entry in result.heuristics if entry.status is HeuristicStatus.FEASIBLE)


def _is_closed_by_heuristic(result: Result) -> bool:
    entry = best_entry(result)
    return result.status is Status.OPTIMAL and entry is not None and entry.value == result.value


def _changes_nothing(name: str, results: Sequence[Result]) -> bool:
    """Whether a variant that does not depend on names does what its original does, everywhere."""
    base = name.removesuffix(STABLE)
    if base == name:
        return False
    reached = [
        {e.name: (e.status, e.value) for e in result.heuristics if e.name in {name, base}}
        for result in results
    ]
    return all(found.get(name) == found.get(base) for found in reached)


def _heuristics(results: Sequence[Result]) -> RenderableType:
    has_failed = any(e.status is HeuristicStatus.FAILED for r in results for e in r.heuristics)
    table = FittingTable(
        Column("heuristic", is_text=True),
        Column("feasible", expendable=1),
        Column("infeasible", expendable=2),
        Column("failed", expendable=1 if has_failed else 3),
        Column("n.a.", expendable=4),
        Column("reaches best"),
        Column("mean gap"),
        Column("worst gap", expendable=1),
    )
    for name in dict.fromkeys(entry.name for result in results for entry in result.heuristics):
        pairs = [(r, e) for r in results for e in r.heuristics if e.name == name]
        count = {status: sum(e.status is status for _, e in pairs) for status in HeuristicStatus}
        if count[HeuristicStatus.NOT_APPLICABLE] == len(pairs) or _changes_nothing(name, results):
            continue
        feasible = [(r, e) for r, e in pairs if e.status is HeuristicStatus.FEASIBLE]
        gaps = [entry.gap for _, entry in feasible if entry.gap is not None]
        table.add_row(
            name,
            str(count[HeuristicStatus.FEASIBLE]),
            str(count[HeuristicStatus.INFEASIBLE]),
            str(count[HeuristicStatus.FAILED]),
            str(count[HeuristicStatus.NOT_APPLICABLE]),
            str(sum(r.value == e.value for r, e in feasible)),
            percent(fmean(gaps)) if gaps else ABSENT,
            percent(max(gaps)) if gaps else ABSENT,
        )
    return table
