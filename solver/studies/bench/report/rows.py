"""Figures over many instances: rows of families, methods and reasons, and curves."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from ppsolve.models.core.result import Status
from ppsolve.models.studies.bench.file import BenchRecord
from ppsolve.solver.studies.bench.report.cases import (
    Method,
    Outcome,
    OutcomeState,
    Role,
    ScoredRecord,
)

WITHIN = (0.0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Excess of the columns of a profile that is written as a table."""


LEAST_COMMON = 0.25
"""Share of the instances that methods have in common: those that would leave fewer, because they
solved few, are not compared on them."""


@dataclass(frozen=True)
class ReportCurveParams:
    """Resolution of curves over time."""

    most_times: int = 120  # points of a curve; a picture has room for no more
    least_time: float = (
        0.01  # seconds at which curves begin: a run's clock starts earlier
    )


@dataclass(frozen=True)
class Spread:
    """Mean, median and largest of some figures, and the instance that the largest is from.

    All are None where `count` is 0.
    """

    count: int = 0
    mean: float | None = None
    median: float | None = None
    worst: float | None = None
    worst_at: str | None = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[float | None, str]]) -> Spread:
        """Return the spread of figures, each with the name of its instance; None is left out."""
        kept = [(figure, name) for figure, name in pairs if figure is not None]
        if not kept:
            return cls()
        figures = np.array([figure for figure, _ in kept])
        last = int(np.argmax(figures))
        mean, median = float(np.mean(figures)), float(np.median(figures))
        return cls(len(kept), mean, median, float(figures[last]), kept[last][1])


@dataclass(frozen=True)
class FamilyRow:
    """Our figures over one family."""

    family: str
    instances: int  # records
    solved: int  # records with an answer
    proved: int  # records with a proved answer
    failures: int  # records without an answer because the run failed
    gap: Spread  # (value - bound) / value
    to_best: Spread  # seconds until the last improvement
    to_proof: Spread  # seconds until the proof
    seconds: float  # wall time of all records together


@dataclass(frozen=True)
class MethodRow:
    """Figures of one method over one family."""

    method: Method
    instances: int  # records that name the method
    solved: int
    proved: int  # of those solved
    wins: int  # records on which no other method has a smaller value
    infeasible: int
    failed: int
    not_applicable: int
    excess: Spread  # (value - best) / best
    common: Spread  # the same over the records on which all methods that solved many have a value
    seconds: Spread  # wall time


@dataclass(frozen=True)
class ReasonRow:
    """How often methods gave one reason for having no schedule, its numbers replaced by #."""

    state: OutcomeState
    reason: str
    count: int
    methods: tuple[str, ...]


def family_row(family: str, cases: Sequence[ScoredRecord]) -> FamilyRow:
    """Return our figures over the cases of a family."""
    ours = [case.outcomes[0] for case in cases]
    records = [case.record for case in cases]
    names = [case.name for case in cases]
    return FamilyRow(
        family,
        instances=len(cases),
        solved=sum(outcome.state is OutcomeState.SOLVED for outcome in ours),
        proved=sum(outcome.proved for outcome in ours),
        failures=sum(record.failure is not None for record in records),
        gap=Spread.of(zip((record.gap for record in records), names, strict=True)),
        to_best=Spread.of(
            zip((r.seconds_to_best for r in records), names, strict=True)
        ),
        to_proof=Spread.of(
            zip((r.seconds_to_proof for r in records), names, strict=True)
        ),
        seconds=float(np.sum([record.seconds for record in records])),
    )


def method_rows(cases: Sequence[ScoredRecord]) -> list[MethodRow]:
    """Return a row for every method: ours, peers, then heuristics, the most useful first."""
    outcomes: dict[Method, list[tuple[ScoredRecord, Outcome]]] = {}
    excesses: dict[Method, Excesses] = {}
    for number, case in enumerate(cases):
        for outcome in case.outcomes:
            outcomes.setdefault(outcome.method, []).append((case, outcome))
            by_case = excesses.setdefault(outcome.method, {})
            if (excess := case.excess(outcome.value)) is not None:
                by_case[number] = excess, case.label
    common = set(range(len(cases)))
    for by_case in sorted(excesses.values(), key=len, reverse=True):
        shared = common & by_case.keys()
        common = shared if len(shared) >= LEAST_COMMON * len(cases) else common
    rows = [
        _method_row(outcomes[method], by_case, common)
        for method, by_case in excesses.items()
    ]
    order = list(Role)
    return sorted(
        rows,
        key=lambda row: (
            order.index(row.method.role),
            -row.solved,
            -1.0 if row.excess.mean is None else row.excess.mean,
            row.method.name,
        ),
    )


Excesses = dict[int, tuple[float, str]]
"""What a method's value is above the best one, and the label of the case, by number of the case."""


def _method_row(
    pairs: Sequence[tuple[ScoredRecord, Outcome]], excesses: Excesses, common: set[int]
) -> MethodRow:
    states = Counter(outcome.state for _, outcome in pairs)
    return MethodRow(
        pairs[0][1].method,
        instances=len(pairs),
        solved=states[OutcomeState.SOLVED],
        proved=sum(outcome.proved for _, outcome in pairs),
        wins=sum(case.is_best(outcome) for case, outcome in pairs),
        infeasible=states[OutcomeState.INFEASIBLE],
        failed=states[OutcomeState.FAILED],
        not_applicable=states[OutcomeState.NOT_APPLICABLE],
        excess=Spread.of(excesses.values()),
        common=Spread.of(
            excesses[n] for n in sorted(common) if common <= excesses.keys()
        ),
        seconds=Spread.of((outcome.seconds, case.label) for case, outcome in pairs),
    )


def reason_rows(cases: Sequence[ScoredRecord]) -> list[ReasonRow]:
    """Return the reasons why methods are infeasible or failed, the most frequent first."""
    counts: dict[tuple[OutcomeState, str], Counter[str]] = {}
    for state, reason, method in _reasons(cases):
        counts.setdefault((state, reason), Counter())[method] += 1
    rows = [
        ReasonRow(
            state,
            reason,
            methods.total(),
            tuple(name for name, _ in methods.most_common()),
        )
        for (state, reason), methods in counts.items()
    ]
    return sorted(rows, key=lambda row: (-row.count, row.state, row.reason))


def _reasons(cases: Sequence[ScoredRecord]) -> Iterator[tuple[OutcomeState, str, str]]:
    told = (OutcomeState.INFEASIBLE, OutcomeState.FAILED)
    for case in cases:
        for outcome in case.outcomes:
            if outcome.state in told:
                yield outcome.state, _general(outcome), outcome.method.name


def _general(outcome: Outcome) -> str:
    """Return a reason without the numbers of one instance; a failure keeps its line of code."""
    text = outcome.reason or "no reason given"
    if outcome.state is OutcomeState.INFEASIBLE:
        text = text.partition(" (")[0]
    return re.sub(r"\d[\d,]*+(?:\.\d+)?+(?![^ ()]*:\d+\)$|\)$)", "#", text)


@dataclass(frozen=True)
class PerformanceProfile:
    """Performance profile of a method (Dolan and Moré, Mathematical Programming 91, 2002).

    Each step is a ratio of its value to the best one, ascending, and the share of all instances on
    which it is at most that.
    """

    method: Method
    steps: tuple[tuple[float, float], ...]

    def share(self, excess: float) -> float:
        """Return the share of instances whose value is at most `excess` above the best one."""
        # Ratios are rounded, so 1.1 may be a little more than 1 + 0.1.
        position = bisect_right(self.steps, 1 + excess + 1e-12, key=itemgetter(0))
        return self.steps[position - 1][1] if position else 0.0


@dataclass(frozen=True)
class GapCurve:
    """Mean gap over time of the records of a family.

    Each point is a time in seconds, ascending, and the mean of all records' gaps from then on. A
    record without value or bound counts as 1, and one that is over keeps its last gap.
    """

    family: str
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """The mean gap in the end."""
        return self.points[-1][1]


def profiles(cases: Sequence[ScoredRecord]) -> list[PerformanceProfile]:
    """Return the profile of every method, over all cases that any method solved."""
    solved = [case for case in cases if case.best is not None]
    ratios: dict[Method, list[float]] = {}
    for case in solved:
        for outcome in case.outcomes:
            excess = case.excess(outcome.value)
            values = ratios.setdefault(outcome.method, [])
            if excess is not None:
                values.append(1 + excess)
    return [
        PerformanceProfile(method, _steps(values, len(solved)))
        for method, values in ratios.items()
    ]


def _steps(ratios: Sequence[float], count: int) -> tuple[tuple[float, float], ...]:
    distinct, times = np.unique(np.array(ratios), return_counts=True)
    return tuple(
        zip(distinct.tolist(), (np.cumsum(times) / count).tolist(), strict=True)
    )


def gap_curve(
    family: str,
    cases: Sequence[ScoredRecord],
    params: ReportCurveParams = ReportCurveParams(),
) -> GapCurve:
    """Return the mean gap over time of the cases of a family."""
    falls = [list(_falls(case.record)) for case in cases]
    times = sorted(
        {max(time, params.least_time) for steps in falls for time, _ in steps}
    )
    kept = _thinned(times, params.most_times)
    total = np.zeros(len(kept))
    for steps in falls:
        moments = np.array([max(time, params.least_time) for time, _ in steps])
        gaps = np.array([1.0, *(gap for _, gap in steps)])
        total += gaps[np.searchsorted(moments, kept, side="right")]
    means = total / len(cases)
    return GapCurve(family, tuple(zip(kept, means.tolist(), strict=True)))


def _thinned(times: Sequence[float], limit: int) -> list[float]:
    """Return at most `limit` of the times, evenly on a logarithmic axis, with the last one."""
    if len(times) <= limit:
        return list(times)
    grid = np.geomspace(times[0], times[-1], limit)
    grid[-1] = times[-1]
    indices = np.unique(np.searchsorted(np.array(times), grid, side="right") - 1)
    return [times[index] for index in indices.tolist()]


def _falls(record: BenchRecord) -> Iterator[tuple[float, float]]:
    """Yield the seconds at which the gap of a record may change, and the gap from then on."""
    lowest = 1.0
    for seconds, value, bound in record.anytime:
        lowest = min(lowest, _gap(value, bound))
        yield seconds, lowest
    is_empty = record.status is Status.INFEASIBLE
    last = max([record.seconds, *(seconds for seconds, *_ in record.anytime)])
    yield last, 0.0 if is_empty else min(lowest, _gap(record.value, record.bound))


def _gap(value: float | None, bound: float | None) -> float:
    """Return (value - bound) / value between 0 and 1, 1 where one of them is not known."""
    if value is None or bound is None:
        return 1.0
    if value == bound:
        return 0.0
    return min(max((value - bound) / value, 0.0), 1.0) if value else 1.0
