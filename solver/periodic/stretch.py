"""A schedule of a few micro-batches, stretched to many by a steady state in its middle."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import HeuristicFailedError, NotApplicableError
from ppsolve.solver.board import Board
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.justify import Justifier
from ppsolve.solver.heuristics.spans import compact_spans
from ppsolve.solver.heuristics.sweep import list_sweep
from ppsolve.solver.periodic.cut import Cut
from ppsolve.solver.periodic.rows import Rows, first_rows, rows_of
from ppsolve.solver.structure.implied import ImpliedOrder

LEAST_OPS = 1_000
"""Ops below which CP-SAT proves most pipelines, and no steady state is sought."""

LEAST_LOAD = 0.95
"""Least mean work of the devices as a share of the largest. Of 38 cuts of pipelines with random
times of every stage (16 x 64, 32 x 128, 64 x 1,024), two had a cycle as short as the largest work;
where none is sought, the sweep has the time."""

SHORT_TIMES = 3
"""Micro-batches of the schedule that is stretched, as a multiple of the devices. V 16 x 96 at
1.25p: of 41 cuts of a schedule of 48 micro-batches 26 have a cycle and 6 delay nothing; of 6 cuts
of one of 32, one has a cycle."""

LEAST_TIMES = 2 * SHORT_TIMES
"""Fewest micro-batches, as a multiple of the devices: those of the short schedule and as many turns
of the cycle, which `Cut` needs. At equal processor time the sweep leaves 0.21 and this 0.18 % on
V 16 x 96 at 1p (0.17 and 0.11 on 8 x 64), but 0.12 and 0.19 on V 16 x 64 at 1.125p: there the short
schedule is hardly shorter. From two micro-batches per device V 16 x 48 came to 0.35 %, the sweep to
0.08."""

SHORT_SHARE = 0.25
"""Share of the time in which the shorter problem is solved. A larger one gives it a better fill and
drain; of 10 s, cycles of V 16 x 96 take 2 to 4, and sweep and exact search follow."""

PLACES = tuple(0.5 + step / 100 for n in range(21) for step in ({n, -n}))
"""Where a schedule is cut, as parts of its makespan, from the middle outwards. A cut without a
cycle takes 0.03 to 0.1 s of processor time of V 16 x 96, one with a cycle 0.7 s."""

ENOUGH = 6
"""Cycles after which no other cut is tried. Of V 16 x 96 at 1.25p the first three delay what
follows by 0.09 to 0.31 periods, the fourth by nothing."""

ROUNDS = 2
"""Rounds of justification, which take back what the cycle delays: V 16 x 96 at 1.125p came back to
the idle time of its short schedule at three cuts of four."""


def steady_schedule(problem: Problem, effort: Effort) -> Schedule:
    """Return a schedule of many micro-batches from that of a few, with a cycle in the middle.

    The fewer micro-batches are scheduled by list rules. Their fill and drain stay as they are, so
    the idle time is that of the short schedule, however many micro-batches are added.

    Parameters
    ----------
    problem : Problem
        m alike micro-batches, at least six for each device.
    effort : Effort
        How long to search.

    Returns
    -------
    Schedule
        A feasible schedule.

    Raises
    ------
    NotApplicableError
        Micro-batches differ, orders on resources do not say how full pools are, devices are
        loaded unequally, or there are few micro-batches or ops.
    HeuristicFailedError
        No cut has a cycle, or none was found in time.
    """
    rows = rows_of(problem)
    if problem.num_ops < LEAST_OPS:
        raise NotApplicableError(f"needs at least {LEAST_OPS:,} ops")
    if _load(rows) < LEAST_LOAD * rows.least_period:
        raise NotApplicableError("needs devices with about as much work each")
    devices = len(problem.span_resources)
    if len(rows.ops) < LEAST_TIMES * devices:
        raise NotApplicableError(f"needs at least {LEAST_TIMES * devices} micro-batches")
    short = _solved(first_rows(rows, SHORT_TIMES * devices), effort)
    found = stretched(rows, short, effort.clock)
    if found is not None:
        return _improved(found, effort.clock)
    raise HeuristicFailedError("found no cut with a cycle as short as the work of a device")


def stretched(rows: Rows, short: Schedule, clock: Clock | None = None) -> Schedule | None:
    """Return a schedule whose middle is a cycle with a turn for every further micro-batch.

    The short schedule is cut. A cycle that starts every op of a micro-batch once per turn, from the
    state at the cut, is put in between as often as micro-batches are missing.

    Parameters
    ----------
    rows : Rows
        m alike micro-batches.
    short : Schedule
        A feasible schedule of at most half of them (`first_rows`).
    clock : Clock, optional
        Once it is over, no further cut is tried.

    Returns
    -------
    Schedule or None
        A feasible schedule of all; None where no cut has a cycle that takes no longer than the
        work of the busiest resource.
    """
    turns = len(rows.ops) - len(short.problem.families[0])
    found = list(islice(_joined(rows_of(short.problem), short, turns, clock or Clock()), ENOUGH))
    if not found:
        return None
    _, start = min(found, key=lambda one: one[0])
    starts = np.empty(rows.problem.num_ops, dtype=np.int64)
    starts[rows.ops] = start
    return Schedule(rows.problem, starts).normalised()


def _load(rows: Rows) -> float:
    """Return the mean work of the devices for one micro-batch, in ticks."""
    devices = rows.problem.span_resources
    mine = np.isin(rows.resource, devices[devices != FREE])
    return float(rows.length[mine].sum()) / max(1, len(devices))


def _solved(short: Problem, effort: Effort) -> Schedule:
    clock = effort.clock.share(SHORT_SHARE)
    bound = best_bound(lower_bounds(ImpliedOrder(short), clock.share(SHORT_SHARE)))
    board = Board.beginning(bound=bound.value)
    return list_sweep(short, clock, board, goes_on=effort.uses_all)


def _improved(schedule: Schedule, clock: Clock) -> Schedule:
    """Return the schedule with its ops justified, which closes gaps beside the cycle."""
    problem = schedule.problem
    if not clock.is_over:
        schedule = Justifier(problem).improve(schedule, ROUNDS)
    if problem.objective is Objective.DEVICE_SPAN:
        schedule = compact_spans(schedule, clock)
    return schedule.normalised()


def _joined(
    rows: Rows, schedule: Schedule, turns: int, clock: Clock
) -> Iterator[tuple[int, IntArray]]:
    """Yield the delay and the starts that each cut leads to, until one delays nothing."""
    from ppsolve.solver.periodic.cycle import find_cycle

    start, period = rows.starts(schedule), rows.least_period
    for place in PLACES:
        if clock.is_over:
            return
        cut = Cut(rows, start, int(schedule.makespan * place), turns)
        cycle = find_cycle(cut, period, clock)
        if cycle is not None:
            yield cycle.delay, cut.joined(cycle.start, period, cycle.delay)
            if cycle.delay <= 0:
                return
