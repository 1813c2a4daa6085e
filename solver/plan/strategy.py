"""The order of a plan's work: quick schedules for what may win, better ones for the best.

What is proved unable to win gets its quick schedule after the first sweeps, for the table. What a
round does to a configuration depends on that configuration alone. Effort is counted in schedules
and levels, and the clock only ends it: a longer plan does what a shorter one did, then more.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

from ppsolve.models.documents.errors import is_interrupt
from ppsolve.solver.kernels.compilation import answering_within, expect
from ppsolve.solver.plan.candidate import Candidate, Level
from ppsolve.solver.plan.list_scheduling import RULES, justified
from ppsolve.solver.plan.search import PlanSearch

PROMISING = 1.15
"""Configurations within this factor of the best are walked by more rules, and the best walk is
justified. On seven of them the best of 60 rules gained 1.3 to 5.0 %, on four justification 4.5 to
7.5 %: together no two gains were more than 6.7 % apart, and this is twice that."""

SCHEDULED_ANYWAY = 2_000
"""Configurations that a bound excludes are scheduled too, so that the table has their figures,
while there are not more of them than this: at 12 to 15 ms each they take half a minute."""

ROUNDS = ((1.04, 16), (1.02, 64), (1.01, 256), (1.01, 1024))
"""How far behind the best a finalist may be, and the steps of its `list-sweep`, round by round.

Each round takes four times as long as the one before it, so what a plan has done when it ends is
most of its last round, and those that compete in it have to be fewer. On the four best of
``gpt-80x128`` sweeps of 10 s gained 4 to 5 % over the justified walk, on no one 1 % more than on
another. With these rounds its best is 0.7 % below that of 73 s of CPU after 28 s, of which the
first schedules take 14.
"""

SWEPT_FIRST = 2
"""Rounds that the best candidate has before those that cannot win are scheduled. Of ``gpt-80x128``
it is 13.10 samples/s before them, 13.17 after one, 13.46 after two (6 s of CPU on a busy machine);
what cannot win takes about 7 s, and 300 s of wall time end at 13.56."""

MEASURED_AFTER = 1
"""Round after which finalists get all heuristics and bounds."""

LEAST_SWEPT = 1_000
"""Ops from which finalists are swept: below, the exact solver does more in the same time."""


def run_rounds(search: PlanSearch) -> None:
    """Refine the candidates of a search as far as its limits allow; an interrupt ends it."""
    try:
        with answering_within(search.clock.left):
            open_ones = (c for c in search.candidates if c.ruled_out is None)
            expect(sum(map(_ops, open_ones)))
            _schedule_promising(search)
            if not search.limits.exhaustive:
                _sweep_first(search)
            _schedule_rest(search)
            if not search.limits.exhaustive:
                _walk_promising(search)
                _refine_finalists(search)
            search.prove()
            search.solve_again()
    except (KeyboardInterrupt, ImportError) as error:
        if not is_interrupt(error):
            raise
        search.interrupted = True
    search.finish()


def _schedule_promising(search: PlanSearch) -> None:
    """Give every candidate that may win a quick schedule, the most promising first.

    A split says more about what a candidate may reach than its configuration does, and takes a
    third of the time of a schedule, so a candidate whose split is found goes back into the queue.
    """
    queue = [(c.promise, c) for c in search.candidates if c.ruled_out is None]
    heapq.heapify(queue)
    while queue and not search.is_late:
        candidate = heapq.heappop(queue)[1]
        if search.is_beaten(candidate):
            return
        search.tell(candidate, "quick schedules")
        # Without a winner nothing can be beaten, and the first schedule is to come soon.
        if candidate.shown is None and search.winner is not None:
            if search.sketch(candidate):
                heapq.heappush(queue, (candidate.promise, candidate))
        else:
            search.schedule(candidate)


def _schedule_rest(search: PlanSearch) -> None:
    """Give all others a quick schedule; those whose split takes a search come last."""
    candidates = list(_by_shape(search))
    rest = [c for c in candidates if not search.is_tried(c)]
    for candidate in rest[:SCHEDULED_ANYWAY]:
        if search.is_late:
            return
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


def _sweep_first(search: PlanSearch) -> None:
    """Walk those whose split stays by more rules, and sweep the best of them."""
    final = [c for c in _ranking(search, PROMISING) if c.level is not Level.ENUMERATED]
    swept = [c for c in final if _is_swept(search, c)]
    for candidate in swept:
        _walk_more(search, candidate)
    for number in range(SWEPT_FIRST if swept else 0):
        if not search.is_late:
            _sweep(search, min(swept, key=lambda c: c.standing), number)


def _walk_promising(search: PlanSearch) -> None:
    """Walk all that is within a factor of the best by more rules, the best first."""
    for candidate in _ranking(search, PROMISING):
        if search.is_late:
            return
        if candidate.level is Level.ENUMERATED:
            search.tell(candidate, "more schedules")
            search.refine(candidate)
        _walk_more(search, candidate)


def _walk_more(search: PlanSearch, candidate: Candidate) -> None:
    """Walk a candidate by more rules, and justify the best walk; what is known takes no time."""
    if candidate.rule is not None and not search.is_late and not search.is_beaten(candidate):
        search.tell(candidate, "more schedules")
        search.walk(candidate, RULES)
        search.walk(candidate, (justified(candidate.rule),))


def _ranking(search: PlanSearch, factor: float) -> list[Candidate]:
    """Return the candidates that may win and are within a factor of the best, the best first."""
    if search.winner is None:
        return []
    least = search.winner.low / factor
    standing = (
        c
        for c in search.candidates
        if c.ruled_out is None and c.low >= least and not c.is_closed and not search.is_beaten(c)
    )
    return sorted(standing, key=lambda c: c.standing)


def _finalists(search: PlanSearch, factor: float = PROMISING) -> Iterator[Candidate]:
    """Yield the best candidates while there is time; of those with one pipeline only the first."""
    seen = set[tuple[object, ...]]()
    for candidate in _ranking(search, factor):
        if candidate.shown is not None and candidate.shown.key not in seen:
            seen.add(candidate.shown.key)
            if search.is_late:
                return
            if not search.is_beaten(candidate):
                yield candidate


def _refine_finalists(search: PlanSearch) -> None:
    """Look closer and closer at the best candidates: longer sweeps, heuristics, solver."""
    for number, (factor, _) in enumerate(ROUNDS):
        for candidate in _finalists(search, factor):
            if _is_swept(search, candidate):
                _sweep(search, candidate, number)
        if number == 0:
            _raise_finalists(search, Level.MEASURED, is_swept=False)
            _raise_finalists(search, Level.SOLVED, is_swept=False)
        if number == MEASURED_AFTER:
            _raise_finalists(search, Level.MEASURED, is_swept=True)
    _raise_finalists(search, Level.SOLVED, is_swept=True)


def _is_swept(search: PlanSearch, candidate: Candidate) -> bool:
    """Return true if a candidate gets sweeps before the exact solver; none by given names do."""
    return search.request.search.schedules is None and _ops(candidate) >= LEAST_SWEPT


def _sweep(search: PlanSearch, candidate: Candidate, number: int) -> None:
    """Give a candidate the sweep of a round, unless it has had that; all justified walks first."""
    if candidate.rounds > number:
        return
    search.tell(candidate, "better schedules")
    if candidate.rule is not None and not candidate.is_finalist:
        for rule in RULES:
            if not search.is_late:
                search.walk(candidate, (justified(rule),))
    search.sweep(candidate, ROUNDS[number][1])
    candidate.rounds = number + 1


def _raise_finalists(search: PlanSearch, level: Level, *, is_swept: bool) -> None:
    """Refine as many finalists as the limits allow up to a level."""
    alike = (c for c in _finalists(search) if _is_swept(search, c) is is_swept)
    for candidate in islice(alike, search.limits.finalists):
        _raise(search, candidate, level)


def _raise(search: PlanSearch, candidate: Candidate, level: Level) -> None:
    """Refine a candidate up to a level, while it may still win."""
    while candidate.level < level and search.may_refine(candidate):
        if search.is_beaten(candidate):
            return
        search.tell(candidate)
        search.refine(candidate)
