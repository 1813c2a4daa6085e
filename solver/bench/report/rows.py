"""Rows of a report: families, methods and bounds, each with its figures over many instances."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ppsolve.solver.bench.report.cases import (
    Method,
    Outcome,
    OutcomeState,
    Role,
    ScoredRecord,
    is_equal,
)

LONGEST_REASON = 120
"""Characters of a reason that are counted as one; the rest names places inside the instance."""

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


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
        known = [(figure, name) for figure, name in pairs if figure is not None]
        if not known:
            return cls()
        figures = np.array([figure for figure, _ in known])
        last = int(np.argmax(figures))
        mean, median = float(np.mean(figures)), float(np.median(figures))
        return cls(len(known), mean, median, float(figures[last]), known[last][1])


@dataclass(frozen=True)
class FamilyRow:
    """Our figures over one family.

    Parameters
    ----------
    family : str
        Its name.
    instances, solved, proved, failures : int
        Records; those with an answer; with a proved one; that have none because the run failed.
    gap : Spread
        (value - bound) / value of the records that have both.
    to_best, to_proof : Spread
        Seconds until the last improvement, and until the proof where there is one.
    seconds : float
        Wall time of all records together.
    """

    family: str
    instances: int
    solved: int
    proved: int
    failures: int
    gap: Spread
    to_best: Spread
    to_proof: Spread
    seconds: float


@dataclass(frozen=True)
class MethodRow:
    """Figures of one method over one family.

    Parameters
    ----------
    method : Method
        The method.
    instances : int
        Records that name the method.
    solved, proved, infeasible, failed, not_applicable : int
        Records by what the method made of them; those proved are among those solved.
    wins : int
        Records on which no other method has a smaller value.
    excess : Spread
        (value - best) / best where it has a value.
    seconds : Spread
        Wall time where it was recorded.
    """

    method: Method
    instances: int
    solved: int
    proved: int
    wins: int
    infeasible: int
    failed: int
    not_applicable: int
    excess: Spread
    seconds: Spread


@dataclass(frozen=True)
class BoundRow:
    """Figures of one lower bound over one family.

    Parameters
    ----------
    name : str
        Name of the bound.
    instances : int
        Records that have the bound and a best value.
    strongest : int
        Records on which no other bound is larger.
    tight : int
        Records on which it equals the best value, which is then proved.
    deviation : Spread
        (best - bound) / best.
    """

    name: str
    instances: int
    strongest: int
    tight: int
    deviation: Spread


@dataclass(frozen=True)
class ReasonRow:
    """How often methods gave one reason for having no schedule, its numbers replaced by #."""

    state: OutcomeState
    reason: str
    count: int
    methods: tuple[str, ...]


def family_row(family: str, cases: Sequence[ScoredRecord]) -> FamilyRow:
    """Return our figures over the cases of a family.

    Parameters
    ----------
    family : str
        Its name.
    cases : sequence of ScoredRecord
        Its cases.

    Returns
    -------
    FamilyRow
        The row.
    """
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
        to_best=Spread.of(zip((r.seconds_to_best for r in records), names, strict=True)),
        to_proof=Spread.of(zip((r.seconds_to_proof for r in records), names, strict=True)),
        seconds=float(np.sum([record.seconds for record in records])),
    )


def method_rows(cases: Sequence[ScoredRecord]) -> list[MethodRow]:
    """Return a row for every method: ours, peers, then heuristics, the most useful first."""
    found: dict[Method, list[tuple[ScoredRecord, Outcome]]] = {}
    for case in cases:
        for outcome in case.outcomes:
            found.setdefault(outcome.method, []).append((case, outcome))
    rows = [_method_row(method, pairs) for method, pairs in found.items()]
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


def _method_row(method: Method, pairs: Sequence[tuple[ScoredRecord, Outcome]]) -> MethodRow:
    states = Counter(outcome.state for _, outcome in pairs)
    return MethodRow(
        method,
        instances=len(pairs),
        solved=states[OutcomeState.SOLVED],
        proved=sum(outcome.proved for _, outcome in pairs),
        wins=sum(case.is_best(outcome) for case, outcome in pairs),
        infeasible=states[OutcomeState.INFEASIBLE],
        failed=states[OutcomeState.FAILED],
        not_applicable=states[OutcomeState.NOT_APPLICABLE],
        excess=Spread.of((case.excess(outcome.value), _label(case)) for case, outcome in pairs),
        seconds=Spread.of((outcome.seconds, _label(case)) for case, outcome in pairs),
    )


def bound_rows(cases: Sequence[ScoredRecord]) -> list[BoundRow]:
    """Return a row for every named bound, the nearest to the best values first."""
    found: dict[str, list[tuple[ScoredRecord, float, float]]] = {}
    for case in cases:
        if case.best is not None:
            for name, bound in case.bounds.items():
                found.setdefault(name, []).append((case, case.best, bound))
    rows = [_bound_row(name, triples) for name, triples in found.items()]
    return sorted(rows, key=lambda row: (row.deviation.mean or 0.0, row.name))


def _bound_row(name: str, triples: Sequence[tuple[ScoredRecord, float, float]]) -> BoundRow:
    return BoundRow(
        name,
        instances=len(triples),
        strongest=sum(is_equal(bound, max(case.bounds.values())) for case, _, bound in triples),
        tight=sum(is_equal(bound, best) for _, best, bound in triples),
        deviation=Spread.of(
            (_deviation(best, bound), _label(case)) for case, best, bound in triples
        ),
    )


def _deviation(best: float, bound: float) -> float | None:
    if is_equal(best, bound):
        return 0.0
    return (best - bound) / best if best else None


def reason_rows(cases: Sequence[ScoredRecord]) -> list[ReasonRow]:
    """Return the reasons why methods are infeasible or failed, the most frequent first."""
    found: dict[tuple[OutcomeState, str], Counter[str]] = {}
    for state, reason, method in _reasons(cases):
        found.setdefault((state, reason), Counter())[method] += 1
    rows = [
        ReasonRow(state, reason, methods.total(), tuple(name for name, _ in methods.most_common()))
        for (state, reason), methods in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.count, row.state, row.reason))


def _reasons(cases: Sequence[ScoredRecord]) -> Iterator[tuple[OutcomeState, str, str]]:
    told = (OutcomeState.INFEASIBLE, OutcomeState.FAILED)
    for case in cases:
        for outcome in case.outcomes:
            if outcome.state in told:
                yield outcome.state, _general(outcome.reason), outcome.method.name


def _general(reason: str | None) -> str:
    """Return a reason without the numbers and the places of one instance."""
    text = (reason or "no reason given").partition(" (")[0]
    return _NUMBER.sub("#", text)[:LONGEST_REASON]


def _label(case: ScoredRecord) -> str:
    return f"{case.family}/{case.name}"
