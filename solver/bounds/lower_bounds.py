"""Analytic lower bounds: paths, work, one-machine relaxations, memory round trips."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ppsolve.models.core.dag import Dag
from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.solver.bounds.first_return import RETURN_MOMENTS, return_bound
from ppsolve.solver.bounds.memory_work import memory_heads
from ppsolve.solver.bounds.one_machine import preemptive_bound
from ppsolve.solver.bounds.spans import Spans, busy_ops
from ppsolve.solver.structure.implied import ImpliedOrder, PoolOrder


@dataclass(frozen=True)
class Bound:
    """A proven lower bound on the objective, in ticks, and the rule that proves it."""

    name: str
    value: int


def lower_bounds(implied: ImpliedOrder) -> list[Bound]:
    """Return every applicable bound, strongest first; ties keep the simpler rule first.

    critical-path
        Longest chain of precedences.
    work
        Per resource: least head + load + least tail.
    one-machine
        Per resource: preemptive relaxation under index order.
    chain
        Device span only: the same for another resource that lies between ops of the device.
    memory-cycle
        Longest chain once a cap makes acquires wait for releases.
    first-return
        One-machine with those waits: before the first release only what fits can run.
    memory-work
        One-machine with heads that also count the work which frees memory for each acquire,
        and first-return at many moments.

    Raises
    ------
    MemoryInfeasible
        No schedule keeps the capacity of a pool.
    """
    if implied.problem.objective is Objective.DEVICE_SPAN:
        found = _span_bounds(implied)
    else:
        found = _makespan_bounds(implied)
    return sorted(found, key=lambda bound: -bound.value)


def _makespan_bounds(implied: ImpliedOrder) -> list[Bound]:
    problem, full = implied.problem, implied.full
    ordered_heads = start_heads(problem, implied.ordered)
    found = [
        Bound("critical-path", _longest_path(problem, implied.plain)),
        Bound("work", work_bound(problem, implied.plain)),
        Bound(
            "one-machine",
            _one_machine(problem, implied.ordered, ordered_heads),
        ),
    ]
    if problem.pools:
        found.append(Bound("memory-cycle", _longest_path(problem, full)))
        heads, strong = start_heads(problem, full), strong_heads(implied)
        first = max(_one_machine(problem, full, heads), _returns(implied, heads, 1))
        found.append(Bound("first-return", first))
        every = max(_one_machine(problem, full, strong), _returns(implied, strong, RETURN_MOMENTS))
        found.append(Bound("memory-work", every))
    return found


def _span_bounds(implied: ImpliedOrder) -> list[Bound]:
    problem = implied.problem
    ordered = Spans(problem, implied.ordered)
    full = Spans(problem, implied.full) if problem.pools else ordered
    found = [
        Bound("critical-path", Spans(problem, implied.plain).longest_path()),
        Bound("work", ordered.work()),
        Bound("one-machine", ordered.own()),
        Bound("chain", full.through_others()),
    ]
    if problem.pools:
        found.append(Bound("memory-cycle", full.longest_path()))
        returned = max(full.own(), full.returns(implied.pools))
        found.append(Bound("first-return", returned))
        strengthen = partial(memory_heads, implied)
        found.append(Bound("memory-work", full.strongest(implied.pools, strengthen)))
    return found


def best_bound(bounds: Iterable[Bound]) -> Bound:
    """Return the strongest bound, or the trivial bound 0 if there is none."""
    return max(bounds, key=lambda bound: bound.value, default=Bound("trivial", 0))


def start_heads(problem: Problem, graph: Dag) -> IntArray:
    """Return the earliest start of every op.

    Parameters
    ----------
    problem : Problem
        n ops with release times and pinned starts.
    graph : Dag
        Precedences to count.

    Returns
    -------
    int64[n]
        Ticks.
    """
    return graph.heads(np.maximum(problem.release, problem.pinned))


def end_tails(problem: Problem, graph: Dag) -> IntArray:
    """Return the least time from the start of every op to the end of the last op after it.

    Parameters
    ----------
    problem : Problem
        n ops.
    graph : Dag
        Precedences to count.

    Returns
    -------
    int64[n]
        Ticks, the op's own duration included.
    """
    return graph.tails(problem.duration)


def strong_heads(implied: ImpliedOrder) -> IntArray:
    """Return earliest starts under all implied precedences and memory work, int64[n] in ticks."""
    return memory_heads(implied, start_heads(implied.problem, implied.full))


def _longest_path(problem: Problem, graph: Dag) -> int:
    heads = start_heads(problem, graph)
    return int((heads + end_tails(problem, graph)).max(initial=0))


def work_bound(problem: Problem, graph: Dag | None = None) -> int:
    """Return the bound ``work`` on the makespan: per resource least head + load + least tail.

    It is the cheapest bound that counts the fill and drain of a pipeline.

    Parameters
    ----------
    problem : Problem
        n ops.
    graph : Dag, optional
        Precedences to count; those of the problem by default.

    Returns
    -------
    int
        Lower bound on the makespan in ticks.
    """
    graph = Dag.of(problem) if graph is None else graph
    heads = start_heads(problem, graph)
    tails = end_tails(problem, graph) - problem.duration
    best = 0
    for ops in _busy_ops(problem):
        load = int(problem.duration[ops].sum())
        best = max(best, int(heads[ops].min()) + load + int(tails[ops].min()))
    return best


def _one_machine(problem: Problem, graph: Dag, heads: IntArray) -> int:
    tails = end_tails(problem, graph) - problem.duration
    return max(
        (
            preemptive_bound(heads[ops], problem.duration[ops], tails[ops])
            for ops in _busy_ops(problem)
        ),
        default=0,
    )


def _returns(implied: ImpliedOrder, heads: IntArray, moments: int) -> int:
    problem = implied.problem
    tails = end_tails(problem, implied.full) - problem.duration
    busy = busy_ops(problem)
    return max(
        (
            return_bound(problem, order, busy[resource], heads, tails, moments)
            for order in implied.pools
            for resource in _acquiring(problem, order)
        ),
        default=0,
    )


def _acquiring(problem: Problem, order: PoolOrder) -> list[int]:
    """Return the resources on which something that has a length acquires from the pool."""
    acquires = np.zeros(problem.num_ops, dtype=np.bool_)
    acquires[order.pool.acquire_op] = True
    acquires &= problem.duration > 0
    occupied = np.repeat(acquires, np.diff(problem.resource_ptr))
    found: list[int] = np.unique(problem.resource_idx[occupied]).tolist()
    return found


def _busy_ops(problem: Problem) -> list[IntArray]:
    return [ops for ops in busy_ops(problem) if len(ops)]
