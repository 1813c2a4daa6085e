"""Shrink device spans: start the first ops later, with the order on every resource kept."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.dag import chain_edges
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.params import COMPACTION
from ppsolve.solver.kernels.compilation import expect
from ppsolve.solver.kernels.longest_paths import (
    Groups,
    longest_tails,
    sort_ops,
    start_within,
)
from ppsolve.solver.kernels.records import PrecedenceGraph
from ppsolve.solver.structure.dag import order_graph
from ppsolve.solver.structure.tables import graph_of, renumbered


def compact_spans(schedule: Schedule, clock: Clock | None = None) -> Schedule:
    """Make device spans smaller while the order on every resource stays the same.

    Ops move to their latest starts; then bisection finds the smallest device span that the orders
    allow, until too little of the clock is left for another step. The makespan may grow. A schedule
    with pinned ops, or with memory whose use does not follow from the orders alone, is returned as
    it is.
    """
    problem, clock = schedule.problem, clock or Clock()
    if np.any(problem.pinned != FREE) or not orders_decide_memory(problem):
        return schedule
    began = clock.left
    tables = _order_tables(schedule)
    best = _right_shift(schedule, *tables)
    # Both take about as long as one step; kernels that run by Python take a second for 24,576 ops.
    if problem.num_ops <= COMPACTION.most_ops and (
        not clock.is_limited or 2 * clock.left > began
    ):
        best = _smallest_span(best, *tables, clock)
    return min(
        schedule, best, key=lambda s: (s.device_span, s.normalised().makespan)
    ).normalised()


def right_shift(schedule: Schedule) -> Schedule:
    """Return the schedule with every op as late as orders and each device's last end allow.

    Orders on resources are kept; the result respects memory where the orders decide its use.
    """
    return _right_shift(schedule, *_order_tables(schedule))


def _right_shift(
    schedule: Schedule, graph: PrecedenceGraph, order: IntArray
) -> Schedule:
    problem = schedule.problem
    latest = np.full(problem.num_ops, schedule.makespan, dtype=np.int64)
    for resource in problem.span_resources.tolist():
        ops = problem.ops_by_resource[resource]
        latest[ops] = np.minimum(latest[ops], schedule.end[ops].max(initial=0))
    tails = problem.duration + (schedule.makespan - latest)
    longest_tails(graph, order, tails)
    return Schedule(problem, schedule.makespan - tails)


def _order_tables(schedule: Schedule) -> tuple[PrecedenceGraph, IntArray]:
    graph = graph_of(schedule.problem, chain_edges(schedule.resource_orders()))
    order = np.zeros(len(graph.duration), dtype=np.int64)
    if sort_ops(graph, graph.num_predecessors.copy(), order) < len(order):
        order_graph(schedule)  # names the cycle
    return graph, order


def orders_decide_memory(problem: Problem) -> bool:
    """Whether all ops that use a pool occupy one common resource, for every pool."""
    for pool in problem.pools:
        ops = np.union1d(pool.acquire_op, pool.release_op)
        if np.any(problem.duration[ops] == 0) or not problem.share_resource(ops):
            return False
    return True


def _smallest_span(
    schedule: Schedule, graph: PrecedenceGraph, order: IntArray, clock: Clock
) -> Schedule:
    problem = schedule.problem
    devices = [problem.ops_by_resource[r] for r in problem.span_resources.tolist()]
    low = max((int(problem.duration[ops].sum()) for ops in devices), default=0)
    sizes = np.cumsum([0, *map(len, devices)]).astype(np.int64)
    rank = np.argsort(order)
    groups = Groups(sizes, rank[np.concatenate([problem.before[:0], *devices])])
    graph = renumbered(graph, order)
    best, high = schedule, schedule.device_span
    steps = COMPACTION.effort // max(problem.num_ops, 1)
    steps = min(COMPACTION.most_steps, max(COMPACTION.least_steps, steps))
    expect(steps * len(sizes) * problem.num_ops / COMPACTION.ops_per_step)
    for _ in range(steps):
        if low >= high or clock.is_over:
            break
        target = (low + high) // 2
        start = problem.release[order]
        if start_within(graph, groups, target, start):
            best = Schedule(problem, start[rank])
            high = best.device_span
        else:
            low = target + 1
    return best
