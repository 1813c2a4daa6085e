"""A report as CSV: one line for each method and each bound of each family."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from ppsolve.solver.bench.report.report import FamilyFigures, Report
from ppsolve.solver.bench.report.rows import BoundRow, MethodRow, Spread

COUNTS = ("instances", "solved", "proved", "wins", "infeasible", "failed", "not_applicable")
BOUND_COUNTS = ("strongest", "tight")
SPREAD = ("count", "mean", "median", "worst", "worst_at")
FIELDS = (
    "family",
    "role",
    "name",
    *COUNTS,
    *BOUND_COUNTS,
    *(f"{what}_{part}" for what in ("excess", "deviation", "gap", "seconds") for part in SPREAD),
    *(f"{what}_{part}" for what in ("to_best", "to_proof") for part in SPREAD),
)
"""Columns: those of `MethodRow` and `BoundRow`; gap and times to best and proof are of ours."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings that spreadsheets take for formulas; such names get an apostrophe in front."""


def csv_report(report: Report) -> str:
    """Return a report as CSV with a header line; shares are plain numbers, times seconds."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for part in (report.every, *report.families):
        writer.writerows({key: _plain(value) for key, value in row.items()} for row in _rows(part))
    return stream.getvalue()


def _rows(part: FamilyFigures) -> Iterator[dict[str, Any]]:
    total = part.total
    for method in part.methods:
        row = _method(method)
        if method.method.role == "ours":
            row |= _spread("gap", total.gap)
            row |= _spread("to_best", total.to_best) | _spread("to_proof", total.to_proof)
        yield {"family": total.family, **row}
    for bound in part.bounds:
        yield {"family": total.family, **_bound(bound)}


def _method(row: MethodRow) -> dict[str, Any]:
    found = {"role": row.method.role.value, "name": row.method.name}
    found |= {name: getattr(row, name) for name in COUNTS}
    return found | _spread("excess", row.excess) | _spread("seconds", row.seconds)


def _bound(row: BoundRow) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "bound", "name": row.name, "instances": row.instances}
    found |= {name: getattr(row, name) for name in BOUND_COUNTS}
    return found | _spread("deviation", row.deviation)


def _spread(name: str, spread: Spread) -> dict[str, Any]:
    return {f"{name}_{part}": getattr(spread, part) for part in SPREAD}


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
