"""Local search over the orders of ops on resources, by simulated annealing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, IntArray, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds.flow.flow import flow_of
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.params import OrderSearchBudget
from ppsolve.solver.kernels.annealing import exponential_quantiles
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.order_search import OrderSearchParams, search_orders
from ppsolve.solver.kernels.order_state import OrderBuffers, OrderState
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import joined, memory_of, rows_by
from ppsolve.solver.structure.timing import time_orders

ORDERS = "order-search"


def obstacle(problem: Problem, budget: OrderSearchBudget | None = None) -> str | None:
    """Return in words why the orders of a problem are not searched, None where they are.

    The budget says from how many ops on a step takes too long.
    """
    most_ops = (budget or OrderSearchBudget()).most_ops
    if problem.num_ops > most_ops:
        return f"needs at most {most_ops} ops"
    if problem.objective is not Objective.MAKESPAN:
        return "needs the makespan as its objective"
    if problem.is_anchored or len(problem.points):
        return "needs ops without given starts, and no points"
    if (problem.lag < 0).any():
        return "needs lags of at least 0"
    if (np.diff(problem.resource_ptr)[problem.duration > 0] > 1).any():
        return "needs ops that occupy one resource each"
    if _homes(problem) is None:
        return (
            "needs pools whose ops all run on one resource, one pool for each resource"
        )
    return None


def order_search(
    schedule: Schedule,
    effort: Effort | None = None,
    *,
    steps: int | None = None,
    seed: int = 1,
) -> Schedule:
    """Return the best schedule found by annealing over the orders of ops on their resources.

    Moves are those of job-shop searches on a longest path; besides, micro-batches that pass the
    same positions trade places as a whole. Each round is twice as long as the one before and begins
    from the best schedule.

    The schedule to improve is feasible, of a problem without an `obstacle`; better ones are
    proposed to the board, at whose bound the search ends. With a number of steps and without a
    limited clock the schedule is the same on every machine. Seeds are 1 to 2**31 - 2.
    """
    effort = effort or Effort()
    clock, budget = effort.clock, effort.params.orders
    search, bound = _OrderSearch(schedule, seed, effort), effort.board.bound.value
    ends_early = steps is None and not (effort.uses_all and clock.is_limited)
    limit, looks, spent, gained = math.inf if steps is None else steps, 1, 0, 0
    ops = schedule.problem.num_ops
    patience = min(
        budget.patience, budget.patience_per_op * ops, budget.patience_times_ops // ops
    )
    if ends_early and not clock.is_limited and ops > budget.large_ops:
        limit = patience
    while spent < limit and not clock.is_over and search.best.makespan > bound:
        before = search.best
        spent += search.anneal(clock, looks, limit - spent)
        looks *= 2
        if search.best is not before:
            gained = spent
        if ends_early and spent - gained >= max(patience, gained):
            break
    return search.best


class _OrderSearch:
    def __init__(self, schedule: Schedule, seed: int, effort: Effort) -> None:
        board, self._budget = effort.board, effort.params.orders
        self._board, self.best, problem = board, schedule, schedule.problem
        traders = _traders(problem)
        edges = [] if len(traders[2]) else _index_order_kept_by(schedule)
        self._shop, self._bound = (
            order_state(problem, edges, traders),
            board.bound.value,
        )
        level = Dag.of(problem, *edges).level
        self._order: IntArray = np.lexsort((level, schedule.start)).astype(np.int64)
        self._best = self._order.copy()
        rooms = np.zeros((2, problem.num_resources), dtype=np.int64)
        self._buffers = OrderBuffers(
            *rooms, *np.zeros((15, problem.num_ops), dtype=np.int64)
        )
        self._rng, self._known = np.array([seed], dtype=np.int64), schedule.makespan
        self._mean = float(problem.duration.mean())

    def anneal(self, clock: Clock, looks: int, limit: float) -> int:
        """Go through one round of annealing from the best orders; return the number of steps."""
        problem, budget, done = self.best.problem, self._budget, 0
        size = max(1, min(budget.steps, budget.steps_times_ops // problem.num_ops))
        self._order[:] = self._best
        expect(
            10 * budget.levels * looks * size
        )  # ops; compiled code is loaded for any search
        for look in range(budget.levels * looks):
            steps = int(min(size, limit - done))
            if steps == 0 or clock.is_over or self._known <= self._bound:
                break
            fall = (budget.cold / budget.hot) ** (look // looks / (budget.levels - 1))
            pace = OrderSearchParams(
                steps,
                round(self._mean * budget.hot * fall),
                budget.reach,
                budget.passed,
                budget.trades,
                self._known,
                self._bound,
            )
            arrays = (self._order, self._best, self._rng)
            self._known = int(search_orders(self._shop, self._buffers, pace, *arrays))
            done += steps
            if self._known < self.best.makespan:
                self.best = self._schedule()
                self._board.propose(self.best, ORDERS)
        return done

    def _schedule(self) -> Schedule:
        resource = self._shop.resource[self._best]
        problem, resources = self.best.problem, range(self.best.problem.num_resources)
        return time_orders(
            problem, [self._best[resource == number] for number in resources]
        )


def _index_order_kept_by(schedule: Schedule) -> list[Edges]:
    before, after, lag = index_order(schedule.problem)
    is_kept = (lag >= 0).all() and (
        schedule.start[after] >= schedule.end[before] + lag
    ).all()
    return [(before, after, lag)] if is_kept else []


def _traders(problem: Problem) -> tuple[IntArray, IntArray, IntArray, int]:
    flow = flow_of(problem)
    row, column = np.full((2, problem.num_ops), FREE, dtype=np.int64)
    if flow is None or all(
        (table == table[0]).all()
        for table in (flow.duration, flow.acquire, flow.release)
    ):
        return row, column, np.zeros(0, dtype=np.int64), 1
    row[flow.ops] = np.arange(flow.num_microbatches)[:, None]
    column[flow.ops] = np.arange(flow.num_positions)
    return row, column, flow.ops.ravel(), flow.num_positions


def order_state(
    problem: Problem,
    edges: list[Edges],
    traders: tuple[IntArray, IntArray, IntArray, int],
) -> OrderState:
    """Return the state of orders that kernels read, of a problem without an `obstacle`.

    Traders are the row and column of each op, the ops of all rows, and the number of columns, where
    rows may trade places.
    """
    memory = local_memory(problem)
    before, after, lag = joined(problem, *edges)
    into, by_after = rows_by(after, problem.num_ops)
    out, by_before = rows_by(before, problem.num_ops)
    return OrderState(
        problem.duration,
        resources_of_ops(problem),
        memory.need,
        memory.freed,
        memory.room,
        into,
        before[by_after],
        lag[by_after],
        out,
        after[by_before],
        lag[by_before],
        *traders,
        exponential_quantiles(65_536),
    )


class LocalMemory(NamedTuple):
    """Amounts of n ops in the one pool of their resource, in whole units."""

    need: IntArray  # int64[n]: what an op acquires
    freed: IntArray  # int64[n]: what it releases at its end
    room: IntArray  # int64[R]: free amount of the pool of each resource


def local_memory(problem: Problem) -> LocalMemory:
    """Return the memory of a problem without an `obstacle`."""
    memory, ops = memory_of(problem), np.arange(problem.num_ops)
    room = np.zeros(problem.num_resources + 1, dtype=np.int64)
    room[_homes(problem)] = memory.size
    need, freed = np.zeros((2, problem.num_ops), dtype=np.int64)
    np.add.at(
        need, np.repeat(ops, np.diff(memory.acquire_pointer)), memory.acquire_amount
    )
    np.add.at(
        freed, np.repeat(ops, np.diff(memory.release_pointer)), memory.release_amount
    )
    return LocalMemory(need, freed, room[:-1])


def resources_of_ops(problem: Problem) -> IntArray:
    """Return the resource of each op, `FREE` for one that takes no time or occupies none."""
    first = np.append(problem.resource_idx, FREE)[problem.resource_ptr[:-1]]
    seated = (np.diff(problem.resource_ptr) > 0) & (problem.duration > 0)
    return np.where(seated, first, FREE)


def _homes(problem: Problem) -> list[int] | None:
    resource = resources_of_ops(problem)
    homes: list[int] = []
    for pool in problem.pools:
        resources = np.unique(
            resource[np.concatenate([pool.acquire_op, pool.release_op])]
        ).tolist()
        if len(resources) > 1 or resources == [FREE]:
            return None
        homes += resources or [FREE]
    used = [home for home in homes if home != FREE]
    return homes if len(set(used)) == len(used) else None
