"""List scheduling: priority rules, and parallel and serial schedule generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.dag import CycleError, Edges
from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.kernels.heaps import empty_heaps
from ppsolve.solver.kernels.parallel_sgs import PATIENCE, Ranking, run_parallel_sgs
from ppsolve.solver.kernels.serial_sgs import (
    SerialProblem,
    SerialState,
    serial_sgs,
)
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import (
    allowed_of,
    gaps_of,
    graph_of,
    memory_of,
    memory_state_of,
    no_memory,
    once,
    resource_use_of,
    usage_of,
)
from ppsolve.solver.structure.timing import short_cycle


def fillers(problem: Problem) -> BoolArray:
    """Return a mask of the ops that fill idle time, the weight-gradient backwards: bool[n]."""
    return problem.kind_mask("W")


def ranked(*keys: IntArray) -> IntArray:
    """Return ranks by the first key, then the next, then op number; int64[n], all different."""
    rank = np.empty(len(keys[0]), dtype=np.int64)
    rank[np.lexsort(keys[::-1])] = np.arange(len(rank))
    return rank


def tails(problem: Problem, *edges: Edges, with_index_order: bool = True) -> IntArray:
    """Return the least time from each op's start to the end of the last op that depends on it.

    An op before a pinned one has a tail that grows the earlier the pin. Index order of alike
    micro-batches counts too, unless told otherwise. Without further edges, tails are found once per
    problem: nobody writes to them. A cycle is a `DeadlockError`.
    """
    if edges:
        order = [index_order(problem)] if with_index_order else []
        return _tails(problem, *edges, *order)
    return _ordered_tails(problem) if with_index_order else _plain_tails(problem)


@once
def _plain_tails(problem: Problem) -> IntArray:
    return _tails(problem)


@once
def _ordered_tails(problem: Problem) -> IntArray:
    return _tails(problem, index_order(problem))


def _tails(problem: Problem, *edges: Edges) -> IntArray:
    try:
        graph = Dag.of(problem, *edges)
    except CycleError as error:
        raise DeadlockError(problem.op_names(error.nodes)) from None
    initial = problem.duration.copy()
    pinned = problem.pinned != FREE
    if pinned.any():
        horizon = int(problem.duration.sum() + problem.lag.sum() + problem.pinned.max())
        initial[pinned] += horizon - problem.pinned[pinned]
    return graph.tails(initial)


def longest_tail(problem: Problem) -> IntArray:
    """Rank by the longest path to the end (critical path), the longest first."""
    return ranked(-tails(problem))


def most_work(problem: Problem) -> IntArray:
    """Rank by the work left in the op's own micro-batch, the most first, then longest tail."""
    return ranked(-tails(problem, with_index_order=False), -tails(problem))


def backward_first(problem: Problem) -> IntArray:
    """Rank backwards before forwards before weight gradients, then by the longest tail."""
    return ranked(kind_class(problem), -tails(problem))


def kind_class(problem: Problem) -> IntArray:
    """Return 1 for forwards, 2 for weight gradients, 0 for all other kinds: int64[n]."""
    classes = np.array(
        [{"F": 1, "W": 2}.get(kind, 0) for kind in problem.kinds], dtype=np.int64
    )
    return classes[problem.kind]


def favoured_backwards(
    problem: Problem, tail: IntArray, favour: float, noise: NDArray[np.float64]
) -> IntArray:
    """Rank by longest tail, with forwards set back by `favour` ticks and noise added to each tail.

    Ranks are all different; the lowest goes first.
    """
    key = tail - favour * problem.kind_mask("F") + noise
    return ranked(-np.rint(key).astype(np.int64))


@dataclass(frozen=True, eq=False)
class PriorityRule:
    """Priorities and preferences of a list scheduler."""

    rank: (
        IntArray  # int64[n]: priority of each op, all different; the lowest goes first
    )
    # bool[n]: ops that fill idle time (weight-gradient backwards): they start where no other op can
    filler: BoolArray
    # an op that would delay one of better rank with a known arrival waits for it if the idle time
    # is at most `patience` x the delay that it would cause; 0: never wait
    patience: float = 0.0
    filler_patience: float = (
        0.0  # the same for fillers, which yield to every op that is no filler
    )
    # a filler goes first where an op waits for the memory that it releases
    frees_memory: bool = False
    # reserve, promise: see `ppsolve.solver.kernels.memory_state`
    reserve: bool = True
    promise: bool = True
    # ops outside the compute streams (transfers, collectives) are served first come first served
    # instead of by rank
    first_come: bool = False


def generate_parallel(
    problem: Problem, rule: PriorityRule, *edges: Edges, with_memory: bool = True
) -> Schedule:
    """Build a schedule by parallel schedule generation (Kolisch 1996): walk through time.

    At every moment, every idle resource starts the waiting op of the lowest rank that can start:
    all its resources are idle, its memory is free, and it ends before the next pinned op. Ops wait
    for memory unless capacities are ignored. A pin that cannot be kept is overrun, which the
    checker reports.

    A `MemoryDeadlockError` says that every op that is left waits for memory that is never released;
    a `DeadlockError` that the precedences, further `edges` included, have a cycle.
    """
    graph = graph_of(problem, *edges)
    memory = memory_of(problem) if with_memory else no_memory(problem)
    if not rule.promise:
        memory = memory._replace(promises=np.zeros_like(memory.promises))
    state, ranking = memory_state_of(memory), _ranking(problem, rule)
    start, awaited = run_parallel_sgs(
        graph, resource_use_of(problem), memory, state, ranking
    )
    if np.any(start == FREE):
        _explain(problem, edges, awaited)
    return Schedule(problem, start)


def _ranking(problem: Problem, rule: PriorityRule) -> Ranking:
    by_rank = problem.is_compute if rule.first_come else np.ones(problem.num_ops)
    factors = (rule.patience, rule.filler_patience)
    patience, filler_patience = (
        round(min(factor * PATIENCE, 2**20)) for factor in factors
    )
    return Ranking(
        rule.rank,
        rule.filler.astype(np.int64),
        by_rank.astype(np.int64),
        problem.pinned,
        patience,
        filler_patience,
        int(rule.frees_memory),
        int(rule.reserve),
    )


def _explain(problem: Problem, edges: Sequence[Edges], awaited: IntArray) -> NoReturn:
    held_up = np.flatnonzero(awaited != FREE)
    if len(held_up):
        pool = int(awaited[held_up].min())
        op = int(np.flatnonzero(awaited == pool)[0])
        raise MemoryDeadlockError(problem.op_name(op), problem.pools[pool].name)
    raise DeadlockError(problem.op_names(short_cycle(problem, *edges)))


def generate_serial(problem: Problem, rank: IntArray, *edges: Edges) -> Schedule:
    """Build a schedule by serial schedule generation (Kolisch 1996): place ops one by one.

    Of the ops whose predecessors are placed, the one of the lowest rank goes to the earliest moment
    at which its resources are free for its whole duration and its memory from then on, inside its
    windows; an op whose windows are all over goes where its resources are free. Pinned ops start at
    their pins. A `MemoryDeadlockError` says that all ops that are left wait for memory that is
    never released.
    """
    use, memory = resource_use_of(problem), memory_of(problem)
    graph = graph_of(problem, *edges)
    state = SerialState(
        gaps_of(problem),
        usage_of(problem),
        memory_state_of(memory),
        empty_heaps(np.array([problem.num_ops])),
        graph.earliest.copy(),
        graph.num_predecessors.copy(),
        np.full(len(memory.size), FREE, dtype=np.int64),
        np.zeros(problem.num_ops, dtype=np.int64),
    )
    start = np.full(problem.num_ops, FREE, dtype=np.int64)
    serial_sgs(
        SerialProblem(graph, use, memory, rank, problem.pinned, allowed_of(problem)),
        state,
        start,
    )
    if start.min(initial=0) < FREE:
        pool = -2 - int(start[start < FREE].max())
        op = int(np.flatnonzero(start == -2 - pool)[0])
        raise MemoryDeadlockError(problem.op_name(op), problem.pools[pool].name)
    return Schedule(problem, start)
