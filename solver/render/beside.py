"""Heuristics beside a result: their values, how far over the best, how far from the bound."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ppsolve.models.core.result import HeuristicEntry, HeuristicStatus, Result, Status
from ppsolve.solver.render.figures import figures, percent
from ppsolve.solver.render.tables import TableColumn, indented, table
from ppsolve.solver.render.wording import ENTRY_STYLE, spaced


def heuristic_table(
    entries: Sequence[HeuristicEntry], result: Result, *columns: TableColumn
) -> RenderableType:
    """Return a table of heuristics: names, values, and what else their kind says.

    Parameters
    ----------
    entries : sequence of HeuristicEntry
        One row each.
    result : Result
        Its objective names the values.
    *columns : TableColumn
        Further columns with their cells.

    Returns
    -------
    RenderableType
        The table, indented.
    """
    found = table(
        TableColumn("heuristic", [entry.name for entry in entries], is_text=True),
        TableColumn(spaced(result.objective), figures(*(e.value for e in entries))),
        *columns,
        styles=[ENTRY_STYLE[entry.status] for entry in entries],
    )
    return indented(found)


def distances(
    entries: Sequence[HeuristicEntry], result: Result, *, expendable: int = 0
) -> list[TableColumn]:
    """Return the distances of heuristics over the best schedule and, where open, to the bound.

    "Over best" is (value - best) / best, "gap" (value - bound) / value as that of the result.

    Parameters
    ----------
    entries : sequence of HeuristicEntry
        One row each.
    result : Result
        What they are compared with.
    expendable : int
        How soon the columns are left out where space is short.

    Returns
    -------
    list of TableColumn
        One column, two where the best is not proved to be optimal.
    """
    over = TableColumn(
        "over\nbest", [percent(entry.gap) for entry in entries], expendable=expendable
    )
    if result.bound is None or result.status is Status.OPTIMAL:
        return [over]
    gaps = [percent(_gap(entry, result.bound)) for entry in entries]
    return [over, TableColumn("gap", gaps, expendable=expendable)]


def _gap(entry: HeuristicEntry, bound: float) -> float | None:
    """Return the gap of a feasible heuristic to a bound; rounded figures never make it negative."""
    if entry.status is not HeuristicStatus.FEASIBLE or entry.value is None:
        return None
    return max(0.0, (entry.value - bound) / entry.value) if entry.value else 0.0
