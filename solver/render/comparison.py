"""Tables over many results: every instance, then every heuristic over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich.console import Group, RenderableType
from rich.text import Text

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result, Status
from ppsolve.solver.render.drawings import drawing_of
from ppsolve.solver.render.figures import ABSENT, figures, percent, seconds
from ppsolve.solver.render.tables import TableColumn, table
from ppsolve.solver.render.wording import unit_of, with_unit

Pair = tuple[Result, HeuristicEntry]
"""A heuristic's entry, and the result that it is in."""


def comparison(results: Sequence[Result], *, fold_names: bool = False) -> RenderableType:
    """Return the table of instances, the table of heuristics and a line of totals.

    Parameters
    ----------
    results : sequence of Result
        One row each.
    fold_names : bool
        Continue long names on the next line instead of cutting them off.

    Returns
    -------
    RenderableType
        The tables one below the other, those of single kinds before the totals.
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
    names_units = len({result.time_unit for result in results if not _counts(result)}) > 1
    best, bounds = [], []
    for result in results:
        value, bound = figures(result.value, result.bound)
        is_named = result.value is not None and (names_units or _counts(result))
        best.append(with_unit(value, unit_of(result)) if is_named else value)
        bounds.append(bound)
    entries = [best_entry(result) for result in results]
    names = [entry.name if entry else ABSENT for entry in entries]
    return table(
        TableColumn("instance", [r.instance for r in results], is_text=True, wraps=fold_names),
        TableColumn("status", [r.status.value for r in results], is_text=True, expendable=1),
        TableColumn("best", best),
        TableColumn("bound", bounds, expendable=5),
        TableColumn("gap", [percent(r.gap) for r in results]),
        TableColumn("best heuristic", names, is_text=True, expendable=2),
        TableColumn("over\nbest", [percent(e.gap if e else None) for e in entries], expendable=3),
        TableColumn("time", [seconds(r.wall_seconds) for r in results], expendable=4),
    )


def _counts(result: Result) -> bool:
    """Whether the value of a result is no time."""
    return unit_of(result) != result.time_unit


def best_entry(result: Result) -> HeuristicEntry | None:
    """Return the feasible heuristic entry with the smallest value, the first one of equals."""
    feasible = (e for e in result.heuristics if e.status is HeuristicStatus.FEASIBLE)
    valued = (entry for entry in feasible if entry.value is not None)
    return min(valued, key=lambda entry: entry.value or 0, default=None)


def _is_closed_by_heuristic(result: Result) -> bool:
    entry = best_entry(result)
    return result.status is Status.OPTIMAL and entry is not None and entry.value == result.value


def _is_repeated(name: str, results: Sequence[Result]) -> bool:
    drawings = {drawing_of(result.kind) for result in results}
    return any(drawing.is_repeated(name, results) for drawing in drawings)


def _counts_of(
    status: HeuristicStatus, found: Sequence[Sequence[Pair]], results: Sequence[Result]
) -> list[str]:
    """Return on how many instances each heuristic had a status.

    Searches are left out where the optimum is known already. Where any was, feasible ones are
    counted as so many of those that were run: nothing is known of the others.
    """
    counts = [sum(entry.status is status for _, entry in pairs) for pairs in found]
    if status is not HeuristicStatus.FEASIBLE or not any(_skips(pairs, results) for pairs in found):
        return list(map(str, counts))
    tried = [
        sum(entry.status is not HeuristicStatus.NOT_APPLICABLE for _, entry in pairs)
        for pairs in found
    ]
    return [f"{count} of {number}" for count, number in zip(counts, tried, strict=True)]


def _skips(pairs: Sequence[Pair], results: Sequence[Result]) -> bool:
    """Whether a heuristic has no entry in some result of a kind that it has entries in."""
    kinds = {result.kind for result, _ in pairs}
    return sum(result.kind in kinds for result in results) > len(pairs)


def _heuristics(results: Sequence[Result]) -> RenderableType:
    found: dict[str, list[Pair]] = {}
    for result in results:
        for entry in result.heuristics:
            found.setdefault(entry.name, []).append((result, entry))
    shown = {
        name: pairs
        for name, pairs in found.items()
        if any(e.status is not HeuristicStatus.NOT_APPLICABLE for _, e in pairs)
        and not _is_repeated(name, results)
    }
    has_failed = any(e.status is HeuristicStatus.FAILED for r in results for e in r.heuristics)
    expendable = {
        HeuristicStatus.FEASIBLE: 1,
        HeuristicStatus.INFEASIBLE: 2,
        HeuristicStatus.FAILED: 1 if has_failed else 3,
        HeuristicStatus.NOT_APPLICABLE: 4,
    }
    feasible = [
        [(r, e) for r, e in pairs if e.status is HeuristicStatus.FEASIBLE]
        for pairs in shown.values()
    ]
    gaps = [[e.gap for _, e in pairs if e.gap is not None] for pairs in feasible]
    return table(
        TableColumn("heuristic", list(shown), is_text=True),
        *(
            TableColumn(
                "n.a." if status is HeuristicStatus.NOT_APPLICABLE else status.value,
                _counts_of(status, list(shown.values()), results),
                expendable=place,
            )
            for status, place in expendable.items()
        ),
        TableColumn("reaches best", [str(sum(r.value == e.value for r, e in p)) for p in feasible]),
        TableColumn("mean\nover best", [percent(fmean(own) if own else None) for own in gaps]),
        TableColumn(
            "worst\nover best", [percent(max(own, default=None)) for own in gaps], expendable=1
        ),
    )
