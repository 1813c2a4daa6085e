"""Local search over lists of ops of which neighbours run as one where both end sooner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.order_search import order_state
from ppsolve.solver.heuristics.params import OrderSearchBudget
from ppsolve.solver.kernels.annealing import exponential_quantiles
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.fused_order import (
    FusedOps,
    FusedPace,
    FusedTimes,
    search_fused,
    time_fused,
)
from ppsolve.solver.kinds.pipeline.options.relaxed import at_their_fastest
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import rows_by

FUSED = "fused orders"


class FusedOrderSearch:
    """Lists of the ops of the base, annealed: what is chosen follows from the list.

    Parameters
    ----------
    problem : OpenProblem
        Its options have two ops, or three of which the third waits for the second alone.
    board : Board
        Better schedules are proposed to it.
    seed : int
        First random number, from 1 to 2**31 - 2.
    """

    def __init__(self, problem: OpenProblem, board: Board, seed: int) -> None:
        self._problem, self._board = problem, board
        self._edges = index_order(at_their_fastest(problem))
        base, count = problem.base, problem.base.num_ops
        none, absent = np.zeros(0, dtype=np.int64), np.full(count, FREE, dtype=np.int64)
        state = order_state(_with_extras(problem), [self._edges], (absent, absent, none, 1))
        rows = np.array(list(_rows(problem)), dtype=np.int64).reshape(-1, 6)
        one, *columns, self._number = rows[np.lexsort((rows[:, 1], rows[:, 0]))].T.copy()
        partner, ticks, third, extra = columns
        pointer, _ = rows_by(one, count)
        self._ops = FusedOps(
            state.duration,
            state.resource,
            state.need,
            state.freed,
            state.room,
            state.into,
            state.source,
            state.wait,
            pointer,
            partner,
            ticks,
            third,
            extra,
            exponential_quantiles(65_536),
        )
        rooms = np.zeros((2, base.num_resources), dtype=np.int64)
        self._times = FusedTimes(*np.zeros((4, count), dtype=np.int64), *rooms)
        self._level = Dag.of(base, self._edges).level
        self._rng = np.array([seed % 2**31 or 1], dtype=np.int64)

    def schedule(self, order: IntArray) -> Schedule:
        """Return the schedule of a list."""
        start, mate = np.zeros((2, len(order)), dtype=np.int64)
        time_fused(self._ops, self._times, order, start, mate)
        choice = np.unique(self._number[mate[mate >= 0]])
        problem = self._problem.problem(choice)
        starts = np.zeros(problem.num_ops, dtype=np.int64)
        starts[self._problem.places(choice)] = start
        return Schedule(problem, starts)

    def order_of(self, schedule: Schedule) -> IntArray:
        """Return a list of the ops of the base by their starts in a schedule."""
        start = schedule.start[self._problem.places(schedule.problem.choice)]
        return np.lexsort((self._level, start)).astype(np.int64)

    def run(self, known: Schedule, clock: Clock, most: float, budget: OrderSearchBudget) -> None:
        """Anneal in rounds, each twice as long as the one before, from the best list.

        Parameters
        ----------
        known : Schedule
            Where the search begins: a schedule in index order.
        clock, most : Clock, float
            Limits: time, and steps.
        budget : OrderSearchBudget
            Temperatures and steps.
        """
        best, count, done, looks = self.order_of(known), len(self._level), 0, 1
        mean = float(self._problem.base.duration.mean())
        size = max(1, min(budget.steps, budget.steps_times_ops // count))
        value = known.makespan
        while True:
            order = best.copy()
            expect(count * budget.levels * looks * size)
            for look in range(budget.levels * looks):
                if done >= most or clock.is_over or value <= self._board.bound.value:
                    return
                fall = (budget.cold / budget.hot) ** (look // looks / (budget.levels - 1))
                heat = round(mean * budget.hot * fall)
                pace = FusedPace(size, heat, budget.reach, self._board.bound.value)
                length = search_fused(self._ops, self._times, pace, order, best, self._rng)
                done += size
                if length < value:
                    value = length
                    found = self.schedule(best)
                    if not check_schedule(found.problem, found):
                        self._board.propose(found, FUSED)
            looks *= 2


def _with_extras(problem: OpenProblem) -> Problem:
    """Return the base with the extra amounts of options among those of its pools."""
    pools = [
        replace(pool, amounts=(*pool.amounts, *_extras(problem, number)))
        for number, pool in enumerate(problem.base.pools)
    ]
    return replace(problem.base, pools=tuple(pools))


def _extras(problem: OpenProblem, number: int) -> dict[Fraction, None]:
    parts = (part for option in problem.options for part in option.extra)
    return dict.fromkeys(amount for place, amount in parts if place == number)


def _rows(problem: OpenProblem) -> Iterator[tuple[int, ...]]:
    """Yield for both ops of each option: them, its time, third op, extra units and number."""
    units = [
        math.lcm(*(amount.denominator for amount in (*pool.amounts, *_extras(problem, number))))
        for number, pool in enumerate(problem.base.pools)
    ]
    for number, option in enumerate(problem.options):
        one, other, *further = option.ops
        third = further[0] if further else FREE
        extra = sum(math.ceil(amount * units[place]) for place, amount in option.extra)
        yield one, other, option.duration, third, extra, number
        yield other, one, option.duration, third, extra, number
