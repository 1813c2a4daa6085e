"""The order of a plan's work: everything gets a quick schedule before anything gets a costly one.

What a round does to a configuration depends on that configuration alone, and effort is counted in
walks and levels, not in seconds. The clock only says where it all ends, so a longer plan does what
a shorter one did and then more, however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator

from ppsolve.models.documents.errors import is_interrupt
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.plan.candidate import Candidate, Level
from ppsolve.solver.plan.search import PlanSearch
from ppsolve.solver.plan.walk import RULES

PROMISING = 1.15
"""Configurations within this factor of the best are walked by more rules. On seven of them the best
of 60 rules gained 1.3 to 5.0 %, so one that is further behind would have to gain three times that.
"""

SCHEDULED_ANYWAY = 2_000
"""Configurations that a bound excludes are scheduled too, so that the table has their figures,
while there are not more of them than this: at 12 to 15 ms each they take the first half minute."""

TRIES = (16, 64, 256)
"""Rules near the best one that each finalist is walked by, round by round. Each round takes four
times as long as the one before it, so what a plan has done when it ends is most of its last round.
"""

LEAST_SHAKEN = 1_000
"""Ops from which finalists are shaken: below, the exact solver does more in the same time."""


def run_rounds(search: PlanSearch) -> None:
    """Refine the candidates of a search as far as its limits allow; an interrupt ends it."""
    try:
        _schedule_all(search)
        if not search.limits.exhaustive:
            _walk_promising(search)
            _refine_finalists(search)
        search.prove()
    except (KeyboardInterrupt, ImportError) as error:
        if not is_interrupt(error):
            raise
        search.interrupted = True
    search.finish()


def _schedule_all(search: PlanSearch) -> None:
    """Give every candidate a quick schedule; those whose split takes a search come last."""
    candidates = list(_by_shape(search))
    expect(sum(map(_ops, candidates)), search.clock.left)
    anyway = 0
    for candidate in candidates:
        if search.is_late:
            return
        if search.is_beaten(candidate):
            anyway += 1
            if anyway > SCHEDULED_ANYWAY:
                continue
        search.tell(candidate, "quick schedules")
        search.schedule(candidate)
    for candidate in candidates:
        is_open = candidate.ruled_out is None and candidate.shown is None
        if is_open and search.may_refine(candidate):
            search.tell(candidate)
            search.refine(candidate)


def _by_shape(search: PlanSearch) -> Iterator[Candidate]:
    """Yield candidates, those of one shape after another, the most promising shape first."""
    shapes: dict[tuple[object, ...], list[Candidate]] = {}
    for candidate in sorted(search.candidates, key=lambda c: c.promise):
        if candidate.ruled_out is None:
            c = candidate.configuration
            size = (c.pipeline_depth, c.virtual_stages, c.placement, c.microbatches)
            shapes.setdefault((*size, c.backward, c.replicas > 1), []).append(candidate)
    for alike in shapes.values():
        yield from alike


def _ops(candidate: Candidate) -> int:
    c = candidate.configuration
    rows = 2 if c.backward == "fused" else 3
    return c.pipeline_depth * c.virtual_stages * c.microbatches * rows


def _walk_promising(search: PlanSearch) -> None:
    """Walk all that is within a factor of the best by more rules, the best first."""
    for candidate in _ranking(search):
        if search.is_late:
            return
        search.tell(candidate, "more schedules")
        if candidate.level is Level.ENUMERATED:
            search.refine(candidate)
        if candidate.rule is not None:
            search.walk(candidate, RULES)


def _ranking(search: PlanSearch) -> list[Candidate]:
    """Return the candidates that may win and are within `PROMISING` of the best, the best first."""
    if search.winner is None:
        return []
    least = search.winner.low / PROMISING
    standing = (
        c
        for c in search.candidates
        if c.ruled_out is None and c.low >= least and not c.is_closed and not search.is_beaten(c)
    )
    return sorted(standing, key=lambda c: c.standing)


def _finalists(search: PlanSearch) -> Iterator[Candidate]:
    """Yield the best candidates while there is time; of those with one pipeline only the first."""
    seen = set[tuple[object, ...]]()
    for candidate in _ranking(search):
        if candidate.shown is not None and candidate.shown.key not in seen:
            seen.add(candidate.shown.key)
            if len(seen) > search.limits.finalists or search.is_late:
                return
            if not search.is_beaten(candidate):
                yield candidate


def _refine_finalists(search: PlanSearch) -> None:
    """Look closer and closer at the best candidates: walks near the best, heuristics, solver."""
    is_free = search.request.search.schedules is None
    for number, tries in enumerate(TRIES):
        for candidate in _finalists(search):
            if _ops(candidate) >= LEAST_SHAKEN:
                search.tell(candidate, "better schedules")
                search.shake(candidate, tries, seed=number)
        if number == 0:
            for candidate in _finalists(search):
                _raise(search, candidate, Level.MEASURED)
                if is_free and _ops(candidate) >= LEAST_SHAKEN and not candidate.is_closed:
                    search.sweep(candidate)
        elif number == 1:
            for candidate in _finalists(search):
                _raise(search, candidate, Level.SOLVED)


def _raise(search: PlanSearch, candidate: Candidate, level: Level) -> None:
    """Refine a candidate up to a level, while it may still win."""
    while candidate.level < level and search.may_refine(candidate):
        if search.is_beaten(candidate):
            return
        search.tell(candidate)
        search.refine(candidate)
