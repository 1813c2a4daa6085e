"""Findings of a report: instances to look at, and answers that cannot all be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ppsolve.solver.interruptible import PATIENCE
from ppsolve.solver.studies.bench.report.cases import ScoredRecord, is_above, written


@dataclass(frozen=True)
class OutlierParams:
    """Outliers are beyond a fence (Tukey, Exploratory Data Analysis, 1977)."""

    fence: float = 1.5  # interquartile ranges above the third quartile; less names more instances
    fewest: int = 5  # figures of a family below which quartiles say nothing
    most_named: int = 10  # outliers of one sort that are named, the largest first


class Sort(StrEnum):
    """Why an instance is an outlier."""

    FAILURE = "failure"
    BEATEN = "beaten"
    GAP = "gap"
    SLOW = "slow"
    LATE = "late"


@dataclass(frozen=True)
class Outlier:
    """An instance to look at."""

    sort: Sort
    family: str
    instance: str
    figure: float | None  # its excess, gap, seconds to the proof, or seconds over the limit
    text: str  # what is odd, in words


@dataclass(frozen=True)
class Outliers:
    """The outliers that are named, and how many there are of each sort."""

    named: tuple[Outlier, ...]
    count: dict[Sort, int]


@dataclass(frozen=True)
class Contradiction:
    """Two answers on one instance that cannot both be right."""

    family: str
    instance: str
    text: str


def outliers(
    families: dict[str, list[ScoredRecord]], params: OutlierParams = OutlierParams()
) -> Outliers:
    """Return failures, better values of others, and unusual gaps and times within each family.

    Parameters
    ----------
    families : dict of str to list of ScoredRecord
        Cases by family.
    params : OutlierParams
        What counts as unusual, and how much of it is named.

    Returns
    -------
    Outliers
        The largest of each sort.
    """
    found: dict[Sort, list[Outlier]] = {sort: [] for sort in Sort}
    for cases in families.values():
        for outlier in _outliers(cases, params):
            found[outlier.sort].append(outlier)
    for own in found.values():
        own.sort(key=lambda outlier: (-(outlier.figure or 0.0), outlier.family, outlier.instance))
    named = [outlier for own in found.values() for outlier in own[: params.most_named]]
    return Outliers(tuple(named), {sort: len(own) for sort, own in found.items() if own})


def _outliers(cases: Sequence[ScoredRecord], params: OutlierParams) -> Iterator[Outlier]:
    for case in cases:
        failure = case.record.failure
        if failure is not None:
            text = f"{failure}: {case.record.error or 'no message'}"
            yield Outlier(Sort.FAILURE, case.family, case.name, None, text)
        elif case.best is not None and not case.is_best(case.outcomes[0]):
            yield _beaten(case)
    gaps = [(case.record.gap, case) for case in cases]
    proofs = [(case.record.seconds_to_proof, case) for case in cases]
    yield from _beyond_fence(Sort.GAP, gaps, params)
    yield from _beyond_fence(Sort.SLOW, proofs, params)
    yield from _late(cases)


def _late(cases: Sequence[ScoredRecord]) -> Iterator[Outlier]:
    """Yield runs that kept no limit; with a limit of 0 bounds and heuristics run to their end."""
    for case in cases:
        limit, seconds = case.record.time_limit, case.record.seconds
        if limit and seconds > limit + PATIENCE and case.record.failure is None:
            text = f"it took {seconds:.4g} s with a limit of {limit:.4g} s"
            yield Outlier(Sort.LATE, case.family, case.name, seconds - limit, text)


def _beaten(case: ScoredRecord) -> Outlier:
    winners = [outcome.method.name for outcome in case.outcomes if case.is_best(outcome)]
    by = ", ".join(winners) or "another run of the instance"
    text = f"{by} has {case.best:,.10g}, ours is {written(case.outcomes[0].value)}"
    excess = case.excess(case.outcomes[0].value)
    return Outlier(Sort.BEATEN, case.family, case.name, excess, text)


def _beyond_fence(
    sort: Sort, figures: Sequence[tuple[float | None, ScoredRecord]], params: OutlierParams
) -> Iterator[Outlier]:
    known = [(figure, case) for figure, case in figures if figure is not None]
    if len(known) < params.fewest:
        return
    low, middle, high = np.quantile([figure for figure, _ in known], [0.25, 0.5, 0.75]).tolist()
    fence = high + params.fence * (high - low)
    shown = f"{100 * middle:.2f} %" if sort is Sort.GAP else f"{middle:.3g} s"
    for figure, case in known:
        if is_above(figure, fence):
            text = f"the median of the family is {shown}"
            yield Outlier(sort, case.family, case.name, figure, text)


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
