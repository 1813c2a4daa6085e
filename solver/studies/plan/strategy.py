"""The order of a plan's work: quick schedules for what may win, better ones for the best.

What is proved unable to win gets its quick schedule after the first sweeps, for the table. What a
round does to a configuration depends on that configuration alone. Effort is counted in schedules
and levels, and the clock only ends it: the work of a longer plan begins with that of a shorter one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count, islice

from ppsolve.models.documents.errors import is_interrupt
from ppsolve.solver.kernels.compilation import answering_within, expect
from ppsolve.solver.studies.plan.candidate import Candidate, Level
from ppsolve.solver.studies.plan.search import PlanSearch


def run_plan(search: PlanSearch) -> None:
    """Refine the candidates of a search as far as its limits allow; an interrupt ends it."""
    try:
        with answering_within(search.clock.left):
            expect(sum(c.configuration.num_ops for c in search.open_candidates))
            _schedule_promising(search)
            if not search.limits.exhaustive:
                _search_under_orders(search)
                _search_splits(search, *search.limits.params.first_splits)
                _sweep_first(search)
            _bound_splits(search)
            _schedule_rest(search)
            if not search.limits.exhaustive:
                _improve_promising(search)
                _refine_finalists(search)
            search.prove()
            search.solve_again()
            search.measure_peaks()
            _search_open_splits(search)
    except (KeyboardInterrupt, ImportError) as error:
        if not is_interrupt(error):
            raise
        search.interrupted = True
    search.finish()


def _schedule_promising(search: PlanSearch) -> None:
    # A split says more about what a candidate may reach than its configuration does, and takes a
    # third of the time of a schedule, so a candidate whose split is found goes back into the queue.
    # Better splits of the others are looked for later.
    queue = [(c.outlook, c) for c in search.open_candidates]
    heapq.heapify(queue)
    while queue and not search.is_late:
        candidate = heapq.heappop(queue)[1]
        if search.winner is not None and candidate.outlook >= search.winner.standing:
            return
        search.news.tell("quick schedules")
        # Without a winner nothing can be beaten, and the first schedule is to come soon.
        if candidate.arrays is None and search.winner is not None:
            if search.sketch(candidate):
                heapq.heappush(queue, (candidate.outlook, candidate))
        else:
            search.schedule(candidate)


def _schedule_rest(search: PlanSearch) -> None:
    # Those whose split takes a search come last.
    candidates = list(_by_shape(search))
    untried = [c for c in candidates if not search.is_tried(c)]
    for candidate in untried[: search.limits.params.scheduled_anyway]:
        if search.is_late:
            return
        search.news.tell("quick schedules")
        search.schedule(candidate)
    for candidate in candidates:
        is_open = candidate.ruled_out is None and candidate.arrays is None
        if is_open and search.may_refine_split(candidate):
            search.tell(candidate)
            search.refine_split(candidate)


def _by_shape(search: PlanSearch) -> Iterator[Candidate]:
    # Those of one shape one after another, the most promising shape first.
    shapes: dict[tuple[object, ...], list[Candidate]] = {}
    for candidate in sorted(search.open_candidates, key=lambda c: c.promise):
        c = candidate.configuration
        size = (c.pipeline_depth, c.virtual_stages, c.placement, c.microbatches)
        shapes.setdefault((*size, c.backward, c.replicas > 1), []).append(candidate)
    for alike in shapes.values():
        yield from alike


def _sweep_first(search: PlanSearch) -> None:
    params = search.limits.params
    final = [
        c for c in _ranking(search, params.promising) if c.level is not Level.ENUMERATED
    ]
    swept = final if search.request.search.schedules is None else []
    for candidate in swept:
        _try_rules(search, candidate)
    for number in range(params.swept_first if swept else 0):
        if not search.is_late:
            best = min(swept, key=lambda c: c.standing)
            if not _is_swept(search, best):
                search.improve_split(best, params.rounds[number][2])
            _sweep(search, best, number)


def _search_splits(search: PlanSearch, factor: float, steps: int) -> None:
    for candidate in _ranking(search, factor):
        if search.is_late:
            return
        if not search.is_beaten(candidate):
            search.news.tell("better splits")
            search.improve_split(candidate, steps)


def _search_under_orders(search: PlanSearch) -> None:
    # What rules reach of a candidate does not tell what published orders reach.
    params, ops = search.limits.params, 0
    factor, steps, most = params.first_orders
    if search.request.search.schedules is None:
        steps = params.first_published
    for candidate in _ranking(search, factor):
        ops += candidate.configuration.num_ops
        if search.is_late or ops > most:
            return
        search.news.tell("better splits")
        search.improve_under_orders(candidate, steps)


def _search_open_splits(search: PlanSearch) -> None:
    # What time the exact solver leaves, all of it where few orders are allowed; each round begins
    # elsewhere.
    params, limits = search.limits.params, search.limits
    if not limits.share_time:
        return
    is_free = search.request.search.schedules is None
    last = len(params.rounds) - 1
    for number in count(1):
        # Under free orders sweeps reach more at first, long searches under published orders later.
        steps = params.rounds[min(number, last) if is_free else last][2]
        contenders = [
            c for c in _ranking(search, params.promising) if search.has_open_splits(c)
        ]
        if not contenders or search.is_late:
            break
        for candidate in contenders:
            if not search.is_late and not search.is_beaten(candidate):
                search.news.tell("better splits")
                search.improve_split(candidate, steps, seed=number)
                if is_free:
                    search.improve_by_sweeps(candidate, params.rounds[1][2], number)
                    search.sweep(candidate, params.rounds[1][1])
    search.prove()


def _bound_splits(search: PlanSearch) -> None:
    # Bounds beat nothing without a winner.
    if search.winner is None:
        return
    for candidate in sorted(search.open_candidates, key=lambda c: c.promise):
        if search.is_late or search.is_beaten(candidate):
            return
        search.news.tell("splits and bounds")
        search.is_outdone(candidate)


def _improve_promising(search: PlanSearch) -> None:
    for candidate in _ranking(search, search.limits.params.promising):
        if search.is_late:
            return
        if candidate.level is Level.ENUMERATED:
            search.news.tell("more schedules")
            search.refine(candidate)
        _try_rules(search, candidate)


def _try_rules(search: PlanSearch, candidate: Candidate) -> None:
    params = search.limits.params
    if (
        candidate.rule is not None
        and not search.is_late
        and not search.is_beaten(candidate)
    ):
        search.news.tell("more schedules")
        search.schedule_by(candidate, params.rules)
        search.schedule_by(candidate, (params.justified(candidate.rule),))


def _ranking(search: PlanSearch, factor: float) -> list[Candidate]:
    if search.winner is None:
        return []
    threshold = search.winner.low / factor
    standing = (
        c
        for c in search.open_candidates
        if c.low >= threshold and c.low < c.high and not search.is_outdone(c)
    )
    return sorted(standing, key=lambda c: c.standing)


def _finalists(search: PlanSearch, factor: float) -> Iterator[Candidate]:
    # While there is time; of those with one pipeline only the first.
    seen = set[tuple[object, ...]]()
    for candidate in _ranking(search, factor):
        if candidate.arrays is not None and candidate.arrays.key not in seen:
            seen.add(candidate.arrays.key)
            if search.is_late:
                return
            if not search.is_beaten(candidate):
                yield candidate


def _refine_finalists(search: PlanSearch) -> None:
    params = search.limits.params
    for number, (factor, _, splits) in enumerate(params.rounds):
        _search_splits(search, factor, splits)
        for candidate in _finalists(search, factor):
            if search.request.search.schedules is None:
                search.improve_by_sweeps(candidate, splits, number)
                _sweep(search, candidate, number)
        if number == 0:
            _raise_finalists(search, Level.MEASURED, is_swept=False)
            _raise_finalists(search, Level.SOLVED, is_swept=False)
        if number == params.measured_after:
            _raise_finalists(search, Level.MEASURED, is_swept=True)
    # Some have another split by now.
    _raise_finalists(search, Level.SOLVED, is_swept=False)
    _raise_finalists(search, Level.SOLVED, is_swept=True)


def _is_swept(search: PlanSearch, candidate: Candidate) -> bool:
    is_large = candidate.configuration.num_ops >= search.limits.params.least_swept
    return search.request.search.schedules is None and is_large


def _sweep(search: PlanSearch, candidate: Candidate, number: int) -> None:
    # All rules are justified first.
    params = search.limits.params
    if candidate.rounds > number or (
        candidate.is_closed and candidate.challenger is None
    ):
        return
    search.news.tell("better schedules")
    if candidate.rule is not None and not candidate.is_finalist:
        for rule in params.rules:
            if not search.is_late:
                search.schedule_by(candidate, (params.justified(rule),))
    search.sweep(candidate, params.rounds[number][1])
    candidate.rounds = number + 1


def _raise_finalists(search: PlanSearch, level: Level, *, is_swept: bool) -> None:
    finalists = _finalists(search, search.limits.params.promising)
    alike = (c for c in finalists if _is_swept(search, c) is is_swept)
    for candidate in islice(alike, search.limits.finalists):
        while candidate.level < level and search.may_raise(candidate):
            if search.is_beaten(candidate):
                break
            search.tell(candidate)
            search.refine(candidate)
