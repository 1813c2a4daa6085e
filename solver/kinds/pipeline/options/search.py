"""Local search over lists of ops of which neighbours run as one where both end sooner."""

from __future__ import annotations

import math

import numpy as np

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import FREE, IntArray
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.order_search import order_state
from ppsolve.solver.heuristics.params import OrderSearchBudget
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.fused_order import (
    FusedOps,
    FusedPace,
    FusedTimes,
    search_fused,
)
from ppsolve.solver.kinds.pipeline.options.relaxed import at_their_fastest
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import rows_by

FUSED = "fused orders"


class FusedOrderSearch:
    """Lists of the ops of the base, annealed: what is chosen follows from the list.

    `problem`: its options have two ops, or three of which the third waits for the
        second alone.
    `board`: better schedules are proposed to it.
    `seed`: decides the random numbers.
    """

    def __init__(self, problem: OpenProblem, board: Board, seed: int) -> None:
        self._problem, self._board = problem, board
        base, edges = problem.base, index_order(at_their_fastest(problem))
        count, pools = base.num_ops, base.pools
        none, absent = np.zeros(0, dtype=np.int64), np.full(count, FREE, dtype=np.int64)
        state = order_state(base, [edges], (absent, absent, none, 1))
        rows = []
        for number, option in enumerate(problem.options):
            (one, other, *further), room = (
                option.ops,
                int(state.room[option.resources[0]]),
            )
            extra = sum(
                part * room / (pools[n].limit - pools[n].initial)
                for n, part in option.extra
            )
            values = (option.duration, *(further or [FREE]), math.ceil(extra), number)
            rows += [(one, other, *values), (other, one, *values)]
        table = np.array(rows, dtype=np.int64).reshape(-1, 6)
        pointer, order = rows_by(table[:, 0], count)
        *columns, self._number = table[order, 1:].T.copy()
        self._ops = FusedOps(state, pointer, *columns)
        start, end, mate, awaited = np.zeros((4, count), dtype=np.int64)
        last, free = np.zeros((2, base.num_resources), dtype=np.int64)
        rng = np.zeros(1, dtype=np.int64)
        self._times = FusedTimes(start, end, mate, awaited, last, free, rng)
        self._level = Dag.of(base, edges).level
        self._found = np.full(2 * count + 1, seed % 2**31 or 1, dtype=np.int64)

    def order_of(self, schedule: Schedule) -> IntArray:
        """Return a list of the ops of the base by their starts in a schedule."""
        start = schedule.start[
            self._problem.places(schedule.problem.chosen(self._problem.field))
        ]
        return np.lexsort((self._level, start)).astype(np.int64)

    def schedule(self, order: IntArray) -> Schedule:
        """Return the schedule of a list."""
        self._search(FusedPace(0, 0, 0, 0), order.copy(), order)
        start, mate = np.split(self._found[:-1], 2)
        choice = np.unique(self._number[mate[mate >= 0]])
        problem = self._problem.problem(choice)
        starts = np.zeros(problem.num_ops, dtype=np.int64)
        starts[self._problem.places(choice)] = start
        return Schedule(problem, starts)

    def _search(self, pace: FusedPace, order: IntArray, best: IntArray) -> int:
        return int(search_fused(self._ops, self._times, pace, order, best, self._found))

    def run(
        self, known: Schedule, clock: Clock, most: float, budget: OrderSearchBudget
    ) -> None:
        """Anneal in rounds, each twice as long as the one before, from the best list.

        `known`: where the search begins: a schedule in index order.
        `clock`, `most`: limits: time, and steps.
        """
        best, count, done, looks = self.order_of(known), len(self._level), 0, 1
        mean, value = float(self._problem.base.duration.mean()), known.makespan
        size = max(1, min(budget.steps, budget.steps_times_ops // count))
        while True:
            order = best.copy()
            expect(count * budget.levels * looks * size)
            for look in range(budget.levels * looks):
                target = self._board.bound.value
                if done >= most or clock.is_over or value <= target:
                    return
                fall = (budget.cold / budget.hot) ** (
                    look // looks / (budget.levels - 1)
                )
                heat = round(mean * budget.hot * fall)
                pace = FusedPace(size, heat, budget.reach, target)
                length, done = self._search(pace, order, best), done + size
                if length < value:
                    value, found = length, self.schedule(best)
                    if not check_schedule(found.problem, found):
                        self._board.propose(found, FUSED)
            looks *= 2
