"""Justification: place all ops again, right to left, then left to right, into the gaps.

Ops are placed in the order of a feasible schedule, so each finds a place no later than its old one
(Valls, Ballestin and Quintanilla 2005). Backwards in time memory obeys the same rules with acquires
and releases exchanged.
"""

from __future__ import annotations

import random

import numpy as np

from ppsolve.models.core.metrics import peak_usage
from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.heuristics.params import RULES
from ppsolve.solver.kernels.justify import (
    Direction,
    Goal,
    JustificationProblem,
    PassBuffers,
    justify,
)
from ppsolve.solver.kernels.longest_paths import Groups
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import index_order
from ppsolve.solver.structure.tables import (
    gaps_of,
    memory_of,
    resource_use_of,
    reversed_memory,
    sources_of,
    usage_of,
)


class Justifier:
    """Improves schedules of one problem; each pass costs the same for every schedule.

    The problem has no release times and pinned starts: time must be reversible.
    """

    def __init__(self, problem: Problem) -> None:
        edges, memory = index_order(problem), memory_of(problem)
        self.problem = problem
        self._tables = JustificationProblem(
            Direction(sources_of(problem, edges), memory),
            Direction(
                sources_of(problem, edges, backwards=True), reversed_memory(memory)
            ),
            resource_use_of(problem),
            _goal(problem),
            problem.duration,
            Dag.of(problem, edges).level,
        )
        room = np.zeros((6, problem.num_ops), dtype=np.int64)
        order = np.arange(problem.num_ops)
        self._buffers = PassBuffers(gaps_of(problem), usage_of(problem), order, *room)
        self._may_overfill = _is_instant(problem)
        self._rng = random.Random(0)

    def improve(self, schedule: Schedule, rounds: int) -> Schedule:
        """Return the best schedule of several passes to the right and to the left.

        With device spans no device ends later than its first start, or starts earlier than its last
        end, allows by the best span so far. The schedule stays within the capacities, and is no
        worse than the feasible one before.
        """
        return self._justified(schedule, np.zeros(0, dtype=np.int64), rounds)

    def shake(self, schedule: Schedule, rounds: int) -> Schedule:
        """Delay a few ops by one mean duration on average, place all others again, and improve.

        This is the perturbation of an iterated local search; the ops are the same ones in every
        run. The schedule stays within the capacities, but may be worse.
        """
        count, mean = self.problem.num_ops, float(self.problem.duration.mean())
        floor = np.zeros(count, dtype=np.int64)
        for _ in range(max(1, int(count * self._rng.choice(RULES.shaken_shares)))):
            op = self._rng.randrange(count)
            floor[op] = schedule.start[op] + int(self._rng.random() * 2 * mean)
        return self._justified(schedule, floor, rounds)

    def _justified(self, schedule: Schedule, floor: IntArray, rounds: int) -> Schedule:
        start = schedule.start.copy()
        justify(self._tables, self._buffers, floor, rounds, start)
        justified = Schedule(self.problem, start)
        return (
            schedule
            if self._may_overfill and not _keeps_memory(justified)
            else justified
        )


def _goal(problem: Problem) -> Goal:
    devices = []
    if problem.objective is Objective.DEVICE_SPAN:
        devices = [
            problem.ops_by_resource[resource] for resource in problem.span_resources
        ]
    used = [ops for ops in devices if len(ops)]
    none = np.zeros(0, dtype=np.int64)
    pointer = np.cumsum([0, *(len(ops) for ops in used)])
    groups, objective = (
        Groups(pointer, np.concatenate([none, *used])),
        problem.objective,
    )
    is_span, is_completion = (
        int(objective is kind) for kind in (Objective.DEVICE_SPAN, Objective.COMPLETION)
    )
    return Goal(is_span, is_completion, groups, problem.weight)


def _is_instant(problem: Problem) -> bool:
    return any(
        np.any(
            problem.duration[np.concatenate([pool.acquire_op, pool.release_op])] == 0
        )
        for pool in problem.pools
    )


def _keeps_memory(schedule: Schedule) -> bool:
    return all(
        peak_usage(schedule, pool)[0] <= pool.limit for pool in schedule.problem.pools
    )
