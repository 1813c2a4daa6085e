"""Many runs of one schedule at once: its orders stay, durations and starts do not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ppsolve.models.core.dag import CycleError, Edges, chain_edges, find_cycle
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError
from ppsolve.solver.kernels.chains import sort_ops
from ppsolve.solver.stress.jitter import FloatArray
from ppsolve.solver.structure.tables import graph_of, joined, rows_by


class FixedOrders:
    """The orders of a schedule's resources, replayed with any durations.

    An op starts once the op before it on each of its resources, all its predecessors and all that
    it waits for besides have ended, lags included. That is how a runtime executes a list of ops;
    nobody waits for the planned start.

    Parameters
    ----------
    problem : Problem
        n ops; none of them pinned.
    orders : sequence of int64[...]
        Ops of each resource in their order.
    waits : Edges, optional
        Precedences beside those of the problem.

    Raises
    ------
    InputError
        Ops are pinned to moments or windows, or memory is shared by resources whose orders do not
        say which op takes it first.
    CycleError
        The orders and the precedences contradict each other.
    """

    def __init__(
        self, problem: Problem, orders: list[IntArray], waits: Edges | None = None
    ) -> None:
        refuse_unfit(problem)
        self.problem, self.orders, self.waits = problem, orders, waits
        edges = [chain_edges(orders), *([] if waits is None else [waits])]
        self._order = _sorted(problem, edges)
        before, after, lag = joined(problem, *edges)
        pointer, rows = rows_by(after, problem.num_ops)
        self._sources = [
            (before[rows[a:b]], lag[rows[a:b]].astype(np.float64)[:, None])
            for a, b in pairwise(pointer.tolist())
        ]
        self._release = problem.release.astype(np.float64)

    @classmethod
    def of(cls, schedule: Schedule) -> FixedOrders:
        """Return the orders in which a schedule starts the ops of its resources."""
        return cls(schedule.problem, schedule.resource_orders(), schedule.waits)

    def makespans(self, durations: FloatArray) -> FloatArray:
        """Replay the orders.

        Parameters
        ----------
        durations : float64[n, b]
            Durations of each op in b runs, ticks.

        Returns
        -------
        float64[b]
            End of the last op less the start of the first one, in ticks.
        """
        end = self.ends(durations)
        last: FloatArray = end.max(axis=0, initial=0.0)
        if self.problem.is_anchored or not len(end):
            return last
        first: FloatArray = (end - durations).min(axis=0)
        return last - first

    def ends(self, durations: FloatArray) -> FloatArray:
        """Return the end of each op in b runs, float64[n, b] in ticks, as `makespans` takes it."""
        end = np.empty_like(durations)
        for op in self._order.tolist():
            before, lag = self._sources[op]
            row = end[op]
            if len(before) > 1:
                np.max(end[before] + lag, axis=0, out=row)
            elif len(before):
                np.add(end[before[0]], lag[0, 0], out=row)
            else:
                row[:] = 0.0
            np.maximum(row, self._release[op], out=row)
            row += durations[op]
        return end

    def last_before(self, op: int, end: FloatArray) -> int | None:
        """Return the op that lets another one start last.

        Parameters
        ----------
        op : int
            The op that waits.
        end : float64[n]
            Ends in one run.

        Returns
        -------
        int or None
            None for an op that waits for nobody.
        """
        before, lag = self._sources[op]
        if not len(before):
            return None
        return int(before[np.argmax(end[before] + lag[:, 0])])


def refuse_unfit(problem: Problem) -> None:
    """Refuse a problem whose schedules are more than the orders of their resources.

    Raises
    ------
    InputError
        Ops are pinned to moments or windows, or memory is shared by resources whose orders do not
        say which op takes it first.
    """
    if np.any(problem.pinned != FREE) or problem.windows:
        raise InputError("ops are pinned to moments, which jitter moves", source=problem.name)
    for pool in problem.pools:
        if not _decided(problem, np.concatenate([pool.acquire_op, pool.release_op])):
            raise InputError(
                f"pool {pool.name} is shared by ops whose order no resource fixes; which of them "
                "takes it first is not known",
                source=problem.name,
            )


def _decided(problem: Problem, ops: IntArray) -> bool:
    """Say whether one resource holds all these ops, so that their order is fixed."""
    if not len(ops):
        return True
    shared = set(problem.resources_of(int(ops[0])).tolist())
    for op in ops[1:].tolist():
        shared &= set(problem.resources_of(op).tolist())
        if not shared:
            return False
    return True


def _sorted(problem: Problem, edges: Sequence[Edges]) -> IntArray:
    graph = graph_of(problem, *edges)
    order = np.zeros(problem.num_ops, dtype=np.int64)
    if sort_ops(graph, graph.num_predecessors.copy(), order) < problem.num_ops:
        before, after, _ = joined(problem, *edges)
        raise CycleError(find_cycle(before, after))
    return order
