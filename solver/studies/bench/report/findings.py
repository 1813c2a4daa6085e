"""Findings of a report: answers that cannot all be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ppsolve.solver.studies.bench.report.cases import ScoredRecord, is_above


@dataclass(frozen=True)
class Contradiction:
    """Two answers on one instance that cannot both be right."""

    family: str
    instance: str
    text: str


def contradictions(cases: Sequence[ScoredRecord]) -> list[Contradiction]:
    """Return bounds above values, and proofs of infeasibility beside schedules."""
    return [
        Contradiction(case.family, case.name, text)
        for case in cases
        if case.best is not None
        for text in _contradictions(case, case.best)
    ]


def _contradictions(case: ScoredRecord, best: float) -> Iterator[str]:
    names = [outcome.method.name for outcome in case.outcomes if case.is_best(outcome)]
    by = f"the value {best:,.10g} of {', '.join(names) or 'another run'}"
    for name, bound in case.bounds.items():
        if is_above(bound, best):
            yield f'the bound "{name}" {bound:,.10g} is above {by}'
    for outcome in case.outcomes:
        name = outcome.method.name
        if outcome.proved and outcome.value is None:
            yield f"{name} calls it infeasible, beside {by}"
        elif outcome.proved and outcome.value is not None and is_above(outcome.value, best):
            yield f"{name} calls {outcome.value:,.10g} optimal, which is above {by}"
