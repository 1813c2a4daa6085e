"""Tables over many results: every instance, then every heuristic over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result, Status
from ppsolve.solver.render.drawings import drawing_of
from ppsolve.solver.render.figures import ABSENT, figures, percent, seconds
from ppsolve.solver.render.tables import Column, FittingTable
from ppsolve.solver.render.wording import unit_of, with_unit


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
    for kind in dict.fromkeys(result.kind for result in results):
        own = [result for result in results if result.kind == kind]
        tables = list(drawing_of(kind).comparison(own, fold_names=fold_names))
        parts += [*tables, Text()] if tables else []
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
    names_units = len({result.time_unit for result in results if not _counts(result)}) > 1
    for result in results:
        entry = best_entry(result)
        best, bound = figures(result.value, result.bound)
        if result.value is not None and (names_units or _counts(result)):
            best = with_unit(best, unit_of(result))
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


def _counts(result: Result) -> bool:
    """Whether the value of a result is no time."""
    return unit_of(result) != result.time_unit


def best_entry(result: Result) -> HeuristicEntry | None:
    """Return the feasible heuristic entry with the smallest value, the first one of equals."""
    feasible = [entry for entry in _feasible(result) if entry.value is not None]
    return min(feasible, key=lambda entry: entry.value or 0, default=None)


def _feasible(result: Result) -> Iterator[HeuristicEntry]:
    return (entry for entry in result.heuristics if entry.status is HeuristicStatus.FEASIBLE)


def _is_closed_by_heuristic(result: Result) -> bool:
    entry = best_entry(result)
    return result.status is Status.OPTIMAL and entry is not None and entry.value == result.value


def _is_repeated(name: str, results: Sequence[Result]) -> bool:
    drawings = {drawing_of(result.kind) for result in results}
    return any(drawing.is_repeated(name, results) for drawing in drawings)


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
        if count[HeuristicStatus.NOT_APPLICABLE] == len(pairs) or _is_repeated(name, results):
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
