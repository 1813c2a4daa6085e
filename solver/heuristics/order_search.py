"""Local search over the orders of ops on resources, by simulated annealing."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, IntArray, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.flow.flow import flow_of
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.order_search import (
    BEST,
    CHANCE_UNIT,
    CHANCES,
    RANDOM,
    OrderSearchParams,
    search_orders,
)
from ppsolve.solver.kernels.shop import Bench, OrderState
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import joined, memory_of, rows_by
from ppsolve.solver.structure.timing import time_orders

_HOT, _COLD = 0.3, 0.02
"""Temperatures at which a round of annealing begins and ends, in mean durations.

At one temperature for 1.5 s, 8 x 32 log-normal micro-batches (a trade in every 16 steps) came from
19.1 % above the bound to 11.9 % at 0.03, 6.2 % at 0.1, 6.5 % at 0.3 and 12.9 % at 1; 8 x 24 with
uneven stages to 1.12, 0.95, 0.14 and 0.14 %.
"""

_LEVELS = 50
"""Temperatures of one round: neighbours differ by 5 %; with fewer the steps become coarser."""

_REACH = 16
"""Most ops that are passed in one move. With 4 in place of 16, 8 x 32 log-normal micro-batches
ended 7.1 instead of 6.5 % above the bound after 2 s at one temperature."""

_TRADES = 2
"""Of 16 steps, those in which micro-batches trade places. On 8 x 32 log-normal micro-batches, 1.5 s
at temperature 0.1, none ended 19.1 % above the bound, 1 of 16 6.2 %, 4 6.4 % and 12 6.8 %."""

_STEPS, _STEPS_TIMES_OPS = 500, 500_000
"""Steps between two looks at the clock: so many, on large problems so many divided by the ops."""

_PATIENCE, _PATIENCE_PER_OP = 400_000, 1_000
"""Steps without a better schedule, at least, before the search gives up: for each op, and at most.
A 4 x 16 pipeline of log-normal micro-batches came from 17.6 to 2.8 % above the bound in 0.36 s of
processor time; with fewer the search ends sooner. By Python the larger number takes 2.5 to 3.7 s,
too long for 24 ops (2 x 4 with split backwards), where it found nothing."""

_PATIENCE_TIMES_OPS = 100_000_000
"""Of large problems, the patience times the ops: a step of 10,368 ops takes 40 us, so that a run
without a limit took 17 s more with 400,000 steps."""

_LARGE = 2_000
"""Ops above which a search without a limit of time ends after its patience, even while it finds
better schedules: on 32 x 256 (24,576 ops) it went on for more than 100 s."""

_MOST_OPS = 15_000
"""Ops up to which orders are searched. Without a limit of time the search took 17 s of 27 with
196,608 ops, for 0.04 %, and 1.4 s of 2.5 with 24,576, for 0.06 %."""

_OPS_PER_STEP = 10
"""Ops that one step is announced as, whether it changes anything or not, so that compiled code is
loaded for any race. More or fewer change no answer."""


def obstacle(problem: Problem) -> str | None:
    """Return in words why the orders of a problem are not searched, None where they are."""
    if problem.num_ops > _MOST_OPS:
        return f"needs at most {_MOST_OPS} ops"
    if problem.objective is not Objective.MAKESPAN:
        return "needs the makespan as its objective"
    if problem.is_anchored or len(problem.points):
        return "needs ops without given starts, and no points"
    if (problem.lag < 0).any():
        return "needs lags of at least 0"
    if (np.diff(problem.resource_ptr)[problem.duration > 0] > 1).any():
        return "needs ops that occupy one resource each"
    if _homes(problem) is None:
        return "needs pools whose ops all run on one resource, one pool for each resource"
    return None


def order_search(
    known: Schedule,
    clock: Clock | None = None,
    *,
    bound: int = 0,
    goes_on: bool = True,
    steps: int | None = None,
    seed: int = 1,
    tell: Callable[[Schedule], None] | None = None,
) -> Schedule:
    """Return the best schedule found by changing the orders of ops on their resources.

    Moves are those of job-shop searches on a longest path; besides, micro-batches that pass the
    same positions trade places as a whole. Rounds of annealing follow each other, each twice as
    long as the one before and from the best schedule. Races with schedules of 3 or 15 other list
    rules, the worse half left after each round, made no difference: over 8 pipelines of 192 to 768
    ops, 2 s each, they ended 4.9 and 5.0 % above the bound, and 5.0 % without.

    Parameters
    ----------
    known : Schedule
        A feasible schedule to improve, of a problem without an `obstacle`.
    clock : Clock, optional
        Once it is over, the best schedule so far is returned.
    bound : int
        A lower bound on the makespan in ticks; the search ends where it is met.
    goes_on : bool
        Whether it uses all the time of a limited clock, or ends once as many steps as led to the
        best schedule, and a patience that grows with the ops, have not helped.
    steps : int, optional
        Number of steps, however many rounds they are and whether these help or not. Without a
        limited clock either way gives the same schedule on every machine.
    seed : int
        First random number, from 1 to 2**31 - 2.
    tell : callable, optional
        Told of better schedules while the search goes on.

    Returns
    -------
    Schedule
        A schedule no longer than `known`.
    """
    clock, search = clock or Clock(), _OrderSearch(known, seed, bound)
    ends_early = steps is None and not (goes_on and clock.is_limited)
    most, looks, spent, gained = math.inf if steps is None else steps, 1, 0, 0
    ops = known.problem.num_ops
    patience = min(_PATIENCE, _PATIENCE_PER_OP * ops, _PATIENCE_TIMES_OPS // ops)
    if ends_early and not clock.is_limited and ops > _LARGE:
        most = patience
    while spent < most and not clock.is_over and search.best.makespan > bound:
        before = search.best
        spent += search.anneal(clock, looks, most - spent, tell)
        looks *= 2
        if search.best is not before:
            gained = spent
        if ends_early and spent - gained >= max(patience, gained):
            break
    return search.best


class _OrderSearch:
    """Orders on their way: arrays that a kernel changes.

    Parameters
    ----------
    known : Schedule
        Where the search begins.
    seed, bound : int
        As in `order_search`.
    """

    def __init__(self, known: Schedule, seed: int, bound: int) -> None:
        self.best, problem = known, known.problem
        traders = _traders(problem)
        edges = [] if len(traders[2]) else _index_order_kept_by(known)
        self._shop, self._bound = _shop(problem, edges, traders), bound
        level = Dag.of(problem, *edges).level
        self._order: IntArray = np.lexsort((level, known.start)).astype(np.int64)
        self._best = self._order.copy()
        rooms = np.zeros((2, problem.num_resources), dtype=np.int64)
        todo = np.zeros((1, 4), dtype=np.int64)
        self._bench = Bench(*rooms, *todo, *np.zeros((15, problem.num_ops), dtype=np.int64))
        self._numbers = np.zeros(4, dtype=np.int64)
        self._numbers[RANDOM], self._numbers[BEST] = seed, known.makespan
        self._mean = float(problem.duration.mean())

    def anneal(
        self, clock: Clock, looks: int, left: float, tell: Callable[[Schedule], None] | None
    ) -> int:
        """Go through one round of annealing from the best orders.

        Parameters
        ----------
        clock : Clock
            Once it is over, the round ends.
        looks : int
            Looks at the clock for each temperature.
        left : float
            Number of steps that are left.
        tell : callable or None
            Told of better schedules.

        Returns
        -------
        int
            Number of steps.
        """
        problem, done = self.best.problem, 0
        size = max(1, min(_STEPS, _STEPS_TIMES_OPS // problem.num_ops))
        self._order[:] = self._best
        expect(_LEVELS * looks * size * _OPS_PER_STEP)
        for look in range(_LEVELS * looks):
            steps = int(min(size, left - done))
            if steps == 0 or clock.is_over or self._numbers[BEST] <= self._bound:
                break
            heat = self._mean * _HOT * (_COLD / _HOT) ** (look // looks / (_LEVELS - 1))
            pace = OrderSearchParams(round(heat), _REACH, _TRADES, self._bound)
            order, best, numbers = self._order, self._best, self._numbers
            search_orders(self._shop, self._bench, pace, steps, order, best, numbers)
            done += steps
            if numbers[BEST] < self.best.makespan:
                self.best = self._schedule()
                if tell is not None:
                    tell(self.best)
        return done

    def _schedule(self) -> Schedule:
        """Return the schedule of the best orders."""
        place = self._shop.resource[self._best]
        problem, resources = self.best.problem, range(self.best.problem.num_resources)
        return time_orders(problem, [self._best[place == number] for number in resources])


def _index_order_kept_by(known: Schedule) -> list[Edges]:
    """Return index order where a schedule keeps it, so that alike ops need not change places."""
    before, after, lag = index_order(known.problem)
    is_kept = (lag >= 0).all() and (known.start[after] >= known.end[before] + lag).all()
    return [(before, after, lag)] if is_kept else []


def _traders(problem: Problem) -> tuple[IntArray, IntArray, IntArray, int]:
    """Return `row`, `column`, `twin` and `width` of `OrderState`; alike ones do not trade."""
    flow = flow_of(problem)
    row, column = np.full((2, problem.num_ops), FREE, dtype=np.int64)
    if flow is None or all(
        (table == table[0]).all() for table in (flow.duration, flow.acquire, flow.release)
    ):
        return row, column, np.zeros(0, dtype=np.int64), 1
    row[flow.ops] = np.arange(flow.num_microbatches)[:, None]
    column[flow.ops] = np.arange(flow.num_positions)
    return row, column, flow.ops.ravel(), flow.num_positions


def _shop(
    problem: Problem, edges: list[Edges], traders: tuple[IntArray, IntArray, IntArray, int]
) -> OrderState:
    """Return the table of a problem with further precedences and the vectors of `_traders`."""
    memory, ops = memory_of(problem), np.arange(problem.num_ops)
    before, after, lag = joined(problem, *edges)
    into, by_after = rows_by(after, problem.num_ops)
    out, by_before = rows_by(before, problem.num_ops)
    room = np.zeros(problem.num_resources + 1, dtype=np.int64)
    room[_homes(problem)] = memory.size
    need, freed = np.zeros((2, problem.num_ops), dtype=np.int64)
    np.add.at(need, np.repeat(ops, np.diff(memory.acquire_pointer)), memory.acquire_amount)
    np.add.at(freed, np.repeat(ops, np.diff(memory.release_pointer)), memory.release_amount)
    return OrderState(
        problem.duration,
        _resources(problem),
        need,
        freed,
        room[:-1],
        into,
        before[by_after],
        lag[by_after],
        out,
        after[by_before],
        lag[by_before],
        *traders,
        _chances(),
    )


def _chances() -> IntArray:
    """Return the quantiles of the exponential distribution in `CHANCE_UNIT`."""
    shares = [(number + 0.5) / CHANCES for number in range(CHANCES)]
    return np.array([round(-CHANCE_UNIT * math.log(share)) for share in shares], dtype=np.int64)


def _resources(problem: Problem) -> IntArray:
    """Return the resource that each op keeps others off, `FREE` where there is none."""
    first = np.append(problem.resource_idx, FREE)[problem.resource_ptr[:-1]]
    seated = (np.diff(problem.resource_ptr) > 0) & (problem.duration > 0)
    resource: IntArray = np.where(seated, first, FREE)
    return resource


def _homes(problem: Problem) -> list[int] | None:
    """Return the resource of each pool's ops, None where a pool has several or shares one."""
    resource = _resources(problem)
    homes: list[int] = []
    for pool in problem.pools:
        found = np.unique(resource[np.concatenate([pool.acquire_op, pool.release_op])]).tolist()
        if len(found) > 1 or found == [FREE]:
            return None
        homes += found or [FREE]
    used = [home for home in homes if home != FREE]
    return homes if len(set(used)) == len(used) else None
