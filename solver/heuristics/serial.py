"""Serial schedule generation: take ops by priority, put each into the first gap that fits."""

from __future__ import annotations

import numpy as np

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.kernels.heaps import empty_heaps
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.kernels.serial_sgs import (
    Gaps,
    SerialProblem,
    SerialState,
    block,
    gap_from,
    serial_sgs,
)
from ppsolve.solver.structure.tables import (
    gaps_of,
    graph_of,
    memory_of,
    memory_state_of,
    resource_use_of,
    usage_of,
)


def generate_serial(problem: Problem, rank: IntArray, *edges: Edges) -> Schedule:
    """Build a schedule by serial schedule generation: place ops one by one.

    Of the ops whose predecessors are placed, the one of the lowest rank goes to the earliest
    moment at which its resources are free for its whole duration and its memory from then on
    (Kolisch 1996: the serial method). An op without memory waits until a placed op releases some.

    Parameters
    ----------
    problem : Problem
        The problem, n ops.
    rank : int64[n]
        Priorities, all different; lowest first.
    *edges : Edges
        Precedences beside those of the problem.

    Returns
    -------
    Schedule
        Starts in ticks, pinned ops at their pins.

    Raises
    ------
    MemoryDeadlockError
        All ops that are left wait for memory that is never released.
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
    serial_sgs(SerialProblem(graph, use, memory, rank, problem.pinned), state, start)
    if start.min(initial=0) < FREE:
        pool = -2 - int(start[start < FREE].max())
        op = int(np.flatnonzero(start == -2 - pool)[0])
        raise MemoryDeadlockError(problem.op_name(op), problem.pools[pool].name)
    return Schedule(problem, start)


class TimeLine:
    """Free intervals of one resource.

    Parameters
    ----------
    count : int
        Largest number of intervals that will be occupied.
    """

    def __init__(self, count: int) -> None:
        slots = count + 1
        self._gaps = Gaps([0] * slots, [NEVER] + [0] * count, [0], [0])

    def first(self, time: int, length: int) -> int:
        """Return the earliest moment from which on the resource is free.

        Parameters
        ----------
        time : int
            Earliest moment, in ticks.
        length : int
            Free ticks required.

        Returns
        -------
        int
            Moment >= `time`.
        """
        begin: int = self._gaps.begin[gap_from(self._gaps, 0, time, length)]
        return max(time, begin)

    def take(self, time: int, length: int) -> None:
        """Occupy an interval, any part of which may be occupied already.

        Parameters
        ----------
        time, length : int
            Begin and length of the interval, in ticks.
        """
        block(self._gaps, 0, time, time + length)
