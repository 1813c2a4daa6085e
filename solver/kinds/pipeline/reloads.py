"""Reloads just in time: precedences that keep copies from coming back long before their use."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Problem
from ppsolve.models.kinds.pipeline.labels import RELOAD_KIND
from ppsolve.solver.structure.dag import Dag


def has_reloads(problem: Problem) -> bool:
    """Whether any activation comes back from the host."""
    return RELOAD_KIND in problem.kinds


def reloads_in_time(problem: Problem) -> Edges:
    """Return precedences by which each reload ends before its gradient can arrive.

    A list schedule starts what it can: without them, the first activations that come back take the
    memory of forwards that later gradients need. A reload waits for the last op on the way of its
    gradient whose end is at least the time of the reload before the arrival.
    """
    is_reload = problem.kind_mask(RELOAD_KIND)
    reloads = np.nonzero(is_reload)[0]
    giver, delay = _givers(problem, is_reload)
    use = np.full(problem.num_ops, FREE, dtype=np.int64)
    is_of_reload = is_reload[problem.before]
    use[problem.before[is_of_reload]] = problem.after[is_of_reload]
    op, way = giver[use[reloads]], delay[use[reloads]]
    time = problem.duration[reloads]
    while True:
        is_late = (way < time) & (giver[op] != FREE)
        if not is_late.any():
            return op, reloads, way - time
        way = np.where(is_late, way + problem.duration[op] + delay[op], way)
        op = np.where(is_late, giver[op], op)


def _givers(problem: Problem, is_reload: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the op that each one waits for the longest, reloads apart, and the lag after it.

    Returns: int64[n], `FREE` for none; int64[n], in ticks.
    """
    here = ~is_reload[problem.before]
    before, after, lag = (
        column[here] for column in (problem.before, problem.after, problem.lag)
    )
    head = Dag.of(problem).heads(problem.release)
    arrival = head[before] + problem.duration[before] + lag
    order = np.argsort(arrival, kind="stable")
    giver = np.full(problem.num_ops, FREE, dtype=np.int64)
    delay = np.zeros(problem.num_ops, dtype=np.int64)
    # Of several, the last one assigned is the latest to arrive.
    giver[after[order]], delay[after[order]] = before[order], lag[order]
    return giver, delay
