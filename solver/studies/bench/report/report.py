"""The report over one file of benchmark results, or over two that are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ppsolve.models.documents.errors import ErrorCode, InputError
from ppsolve.models.studies.bench.file import Records
from ppsolve.solver.studies.bench.report.cases import (
    Contradiction,
    ScoredRecord,
    cases_of,
    contradictions,
)
from ppsolve.solver.studies.bench.report.comparison import Comparison, compare
from ppsolve.solver.studies.bench.report.groups import grouped, natural_key
from ppsolve.solver.studies.bench.report.rows import (
    FamilyRow,
    GapCurve,
    MethodRow,
    PerformanceProfile,
    ReasonRow,
    family_row,
    gap_curve,
    method_rows,
    profiles,
    reason_rows,
)


@dataclass(frozen=True)
class FamilyFigures:
    """Figures over one family, or over all of them."""

    total: FamilyRow
    methods: tuple[MethodRow, ...]
    profiles: tuple[PerformanceProfile, ...]
    curve: GapCurve


@dataclass(frozen=True)
class Report:
    """All figures of a report."""

    source: str  # name of the file
    baseline: str | None  # name of the earlier file that it is compared with
    every: FamilyFigures  # over all families
    families: tuple[FamilyFigures, ...]  # sorted by name
    reasons: tuple[ReasonRow, ...]  # why methods have no schedule
    # Family and name that several instances have, and how many.
    namesakes: dict[str, int]
    contradictions: tuple[Contradiction, ...]  # of both files
    comparison: Comparison | None
    machines: tuple[str, ...]  # where the runs were, in the order of the file
    time_limits: tuple[float, ...]  # of the runs, in seconds, ascending
    columns: tuple[str, ...] = ()  # of tables, by how their names begin; empty for all

    def document(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return {"schema": 1, "kind": "bench-report", **asdict(self)}


def bench_report(
    records: Records,
    source: str,
    baseline: tuple[Records, str] | None = None,
    tolerance: float = 0.0,
    *,
    by: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Report:
    """Return the report over benchmark results: figures over all families and of each.

    An `InputError` says that there are no results, or that the files are about different instances.

    `source`: name of the file of the results.
    `baseline`: earlier results and the name of their file.
    `tolerance`: share by which a value or bound may be worse than in the baseline.
    `by`: factors of instances whose values take the place of families.
    `columns`: beginnings of the names of the columns that tables keep.
    """
    if by:
        records = grouped(records, by)
        baseline = baseline and (grouped(baseline[0], by), baseline[1])
    _refuse_empty(records, source)
    contents = {(r.family, r.instance, r.content) for r in records.records if r.content}
    names = Counter(f"{family}/{name}" for family, name, _ in sorted(contents))
    cases = cases_of(records.records)
    families: dict[str, list[ScoredRecord]] = {}
    for case in sorted(cases, key=lambda case: natural_key(case.family)):
        families.setdefault(case.family, []).append(case)
    comparison = None
    if baseline is not None:
        _refuse_empty(*baseline)
        sources = (baseline[1], source)
        old = baseline[0].records
        comparison = compare(old, records.records, tolerance, sources)
    across = () if comparison is None else comparison.contradictions
    limits = {
        record.time_limit for record in records.records if record.time_limit is not None
    }
    return Report(
        source=source,
        baseline=None if baseline is None else baseline[1],
        every=_part("all", cases),
        families=tuple(_part(name, members) for name, members in families.items()),
        reasons=tuple(reason_rows(cases)),
        namesakes={name: count for name, count in names.items() if count > 1},
        contradictions=(*contradictions(cases), *across),
        comparison=comparison,
        machines=tuple(dict.fromkeys(record.machine for record in records.records)),
        time_limits=tuple(sorted(limits)),
        columns=tuple(columns),
    )


def _part(name: str, cases: Sequence[ScoredRecord]) -> FamilyFigures:
    return FamilyFigures(
        family_row(name, cases),
        tuple(method_rows(cases)),
        tuple(profiles(cases)),
        gap_curve(name, cases),
    )


def _refuse_empty(records: Records, source: str) -> None:
    if not records.records:
        raise InputError(
            "expected results of a benchmark, there are none",
            source=source,
            code=ErrorCode.MISSING,
        )
