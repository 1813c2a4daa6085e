"""Bubbles of a pinned pipeline filled greedily: each K-FAC op goes into the earliest that fits."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ppsolve.models.core.problem import FREE, IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import InputError, NotApplicableError
from ppsolve.models.kfac.cycle import lower_cycle
from ppsolve.models.kfac.instance import FREE_PIPELINE, KfacInstance
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.priorities import longest_tail, ranked
from ppsolve.solver.heuristics.serial import TimeLine
from ppsolve.solver.kfac.pinned import pinned_cycle
from ppsolve.solver.structure.timing import Network


def pin_and_fill(instance: KfacInstance, problem: Problem, pattern: str) -> Schedule:
    """Pin the pipeline to a published schedule and fill its bubbles greedily with K-FAC work.

    Parameters
    ----------
    instance : KfacInstance
    problem : Problem
    pattern : str
        A published pipeline heuristic.

    Returns
    -------
    Schedule
        The best over the priority rules; the first rule's where all break a rule such as memory.

    Raises
    ------
    NotApplicableError
        The heuristic does not apply to the pipeline, or gives no valid schedule of it, or the
        instance pins another one.
    """
    if instance.pattern not in {FREE_PIPELINE, pattern}:
        raise NotApplicableError(f"the pipeline is pinned to {instance.pattern}")
    try:
        pinned = pinned_cycle(instance, lower_cycle(instance), pattern)
    except InputError as error:
        raise NotApplicableError(error.message) from None
    if instance.pattern == FREE_PIPELINE:
        # The margin of holes says nothing about a pipeline that is free to move.
        pinned = replace(pinned, windows={})
    return Schedule(problem, fill_bubbles(pinned).start)


def fill_bubbles(pinned: Problem) -> Schedule:
    """Place ops without a pin into the bubbles between pinned ops; the best of several rules."""
    schedules = [fill_by_rank(pinned, rule(pinned)) for rule in _RULES]
    valid = [schedule for schedule in schedules if not check_schedule(pinned, schedule)]
    return min(valid or schedules[:1], key=lambda schedule: schedule.value)


def fill_by_rank(pinned: Problem, rank: IntArray) -> Schedule:
    """Place ops without a pin one by one, each at the earliest moment that fits.

    Of the ops whose predecessors are placed, the one of the lowest rank comes next. Neither
    memory nor pinned successors are looked at.

    Parameters
    ----------
    pinned : Problem
    rank : int64[n]
        Priorities, all different; lowest first.

    Returns
    -------
    Schedule
        Starts of all ops in ticks; pinned ones keep theirs.
    """
    return _BubbleFilling(pinned, rank).run()


def _by_kind(*kinds: str) -> Callable[[Problem], IntArray]:
    def rule(problem: Problem) -> IntArray:
        place = {kind: position for position, kind in enumerate(kinds)}
        order = np.array([place.get(kind, -1) for kind in problem.kinds], dtype=np.int64)
        return ranked(order[problem.kind])

    return rule


# Longest path first is list scheduling's usual rule; PipeFisher takes all curvature, then all syncs
# and inversions; factor by factor, the first inverses are ready soonest.
_RULES = (
    longest_tail,
    _by_kind("CA", "CB", "SA", "SB", "IA", "IB"),
    _by_kind("CA", "SA", "IA", "CB", "SB", "IB"),
    _by_kind("CB", "SB", "IB", "CA", "SA", "IA"),
)


class _BubbleFilling:
    def __init__(self, pinned: Problem, rank: IntArray) -> None:
        self.problem = pinned
        self.rank: list[int] = rank.tolist()
        self.network = Network(pinned)
        self.resources = self.network.occupied()
        self.ready = list(self.network.earliest)
        self.missing = list(self.network.num_predecessors)
        self.start: list[int] = pinned.pinned.tolist()
        self.gaps = [TimeLine(len(ops)) for ops in pinned.ops_by_resource]
        self.heap: list[tuple[int, int]] = []

    def run(self) -> Schedule:
        fixed = np.flatnonzero(self.problem.pinned != FREE)
        for op in fixed[np.argsort(self.problem.pinned[fixed], kind="stable")].tolist():
            self._take(op)
        self.heap = [(self.rank[op], op) for op, count in enumerate(self.missing) if not count]
        self.heap = [(rank, op) for rank, op in self.heap if self.start[op] == FREE]
        for op in fixed.tolist():
            self._release_successors(op)
        heapq.heapify(self.heap)
        while self.heap:
            op = heapq.heappop(self.heap)[1]
            self.start[op] = self._earliest(op)
            self._take(op)
            self._release_successors(op)
        return Schedule(self.problem, np.array(self.start, dtype=np.int64))

    def _take(self, op: int) -> None:
        for resource in self.resources[op]:
            self.gaps[resource].take(self.start[op], self.network.duration[op])

    def _release_successors(self, op: int) -> None:
        network = self.network
        end = self.start[op] + network.duration[op]
        for position in range(network.pointer[op], network.pointer[op + 1]):
            waiter = network.successor[position]
            self.ready[waiter] = max(self.ready[waiter], end + network.lag[position])
            self.missing[waiter] -= 1
            if not self.missing[waiter] and self.start[waiter] == FREE:
                heapq.heappush(self.heap, (self.rank[waiter], waiter))

    def _earliest(self, op: int) -> int:
        time, length, moved = self.ready[op], self.network.duration[op], True
        allowed = self.problem.windows.get(op)
        while moved:
            moment = time if allowed is None else _into(allowed, time)
            for resource in self.resources[op]:
                moment = self.gaps[resource].first(moment, length)
            moved, time = moment > time, moment
        return time


def _into(allowed: IntArray, time: int) -> int:
    place = int(np.searchsorted(allowed[:, 1], time))
    return max(time, int(allowed[place, 0])) if place < len(allowed) else time
