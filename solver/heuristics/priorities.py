"""Priority rules of list scheduling: ranks of ops, the lowest goes first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ppsolve.models.core.dag import CycleError, Edges
from ppsolve.models.core.problem import FREE, BoolArray, IntArray, Problem
from ppsolve.models.documents.errors import DeadlockError
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import once

_CLASSES = {"I": 0, "B": 0, "F": 1, "W": 2}


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

    Those without further edges are found once per problem: nobody writes to them. An op before a
    pinned one has a tail that grows the earlier the pin.

    Parameters
    ----------
    problem : Problem
        n ops.
    *edges : Edges
        Precedences beside those of the problem.
    with_index_order : bool
        Count index order of alike micro-batches too.

    Returns
    -------
    int64[n]
        Ticks.

    Raises
    ------
    DeadlockError
        The precedences have a cycle.
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
    classes = np.array([_CLASSES.get(kind, 0) for kind in problem.kinds], dtype=np.int64)
    of_op: IntArray = classes[problem.kind]
    return of_op


def favoured_backwards(
    problem: Problem, tail: IntArray, favour: float, noise: NDArray[np.float64]
) -> IntArray:
    """Rank by longest tail, with forwards set back and noise added.

    Parameters
    ----------
    problem : Problem
        The problem, n ops.
    tail : int64[n]
        See `tails`.
    favour : float
        Ticks taken off the tails of forwards; 0 gives `longest_tail`, a large number puts all
        forwards last.
    noise : float64[n]
        Ticks added to each op's tail.

    Returns
    -------
    int64[n]
        Ranks, all different; the lowest goes first.
    """
    key = tail - favour * problem.kind_mask("F") + noise
    return ranked(-np.rint(key).astype(np.int64))
