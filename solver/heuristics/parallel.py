"""Parallel schedule generation: walk through time, start the best op wherever one can start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.solver.kernels.parallel_sgs import Ranking, run_parallel_sgs
from ppsolve.solver.structure.tables import (
    graph_of,
    memory_of,
    memory_state_of,
    no_memory,
    resource_use_of,
)
from ppsolve.solver.structure.timing import Network, short_cycle


@dataclass(frozen=True, eq=False)
class PriorityRule:
    """Priorities and preferences of a list scheduler.

    Parameters
    ----------
    rank : int64[n]
        Priority of each op, all different; the lowest goes first.
    filler : bool[n]
        Ops that fill idle time (weight-gradient backwards): they start where no other op can.
    patience : float
        An op that would delay one of better rank with a known arrival waits for it if the idle
        time is at most `patience` x the delay that it would cause; 0: never wait.
    filler_patience : float
        The same for fillers, which yield to every op that is no filler.
    frees_memory : bool
        A filler goes first where an op waits for the memory that it releases.
    reserve, promise : bool
        See `ppsolve.solver.kernels.memory_state`.
    first_come : bool
        Ops outside the compute streams (transfers, collectives) are served first come first served
        instead of by rank.
    """

    rank: IntArray
    filler: BoolArray
    patience: float = 0.0
    filler_patience: float = 0.0
    frees_memory: bool = False
    reserve: bool = True
    promise: bool = True
    first_come: bool = False


def generate_parallel(
    problem: Problem, rule: PriorityRule, *edges: Edges, with_memory: bool = True
) -> Schedule:
    """Build a schedule by parallel schedule generation: walk through time, start what can start.

    At every moment, every idle resource starts the waiting op of the lowest rank that can start:
    all its resources are idle, its memory is free, and it ends before the next pinned op. Transfers
    and collectives outside the compute streams follow the same ranks (Kolisch 1996: the parallel
    method).

    Parameters
    ----------
    problem : Problem
        The problem, n ops.
    rule : PriorityRule
        Priorities.
    *edges : Edges
        Precedences beside those of the problem, e.g. index order of alike micro-batches.
    with_memory : bool
        Ops wait for memory; otherwise capacities are ignored.

    Returns
    -------
    Schedule
        Starts in ticks; a pin that cannot be kept is overrun, which the checker reports.

    Raises
    ------
    MemoryDeadlockError
        Every op that is left waits for memory that is never released.
    DeadlockError
        The precedences have a cycle.
    """
    graph = graph_of(problem, *edges)
    memory = memory_of(problem) if with_memory else no_memory(problem)
    if not rule.promise:
        memory = memory._replace(promises=np.zeros_like(memory.promises))
    state, ranking = memory_state_of(memory), _ranking(problem, rule)
    start, awaited = run_parallel_sgs(graph, resource_use_of(problem), memory, state, ranking)
    if np.any(start == FREE):
        _explain(problem, edges, start, awaited)
    return Schedule(problem, start)


def _ranking(problem: Problem, rule: PriorityRule) -> Ranking:
    by_rank = problem.is_compute if rule.first_come else np.ones(problem.num_ops)
    return Ranking(
        rule.rank,
        rule.filler.astype(np.int64),
        by_rank.astype(np.int64),
        problem.pinned,
        rule.patience,
        rule.filler_patience,
        int(rule.frees_memory),
        int(rule.reserve),
    )


def _explain(
    problem: Problem, edges: Sequence[Edges], start: IntArray, awaited: IntArray
) -> NoReturn:
    held_up = np.flatnonzero(awaited != FREE)
    if len(held_up):
        pool = int(awaited[held_up].min())
        op = int(np.flatnonzero(awaited == pool)[0])
        raise MemoryDeadlockError(problem.op_name(op), problem.pools[pool].name)
    stuck = set(np.flatnonzero(start == FREE).tolist())
    raise DeadlockError(problem.op_names(short_cycle(Network(problem, *edges), stuck)))
