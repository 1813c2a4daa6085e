"""The parts of a problem that bounds count from: earliest starts under ever stronger rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ppsolve.models.core.problem import IntArray, Objective, Problem
from ppsolve.solver.bounds.flow.flow import Paths, flow_of
from ppsolve.solver.bounds.memory_work import MemoryWork
from ppsolve.solver.bounds.one_machine import (
    Reason,
    acquiring,
    largest,
    preemptive_bound,
    return_bound,
)
from ppsolve.solver.bounds.params import (
    DEFAULT_PARAMS,
    ENDLESS,
    BoundsEffort,
    BoundsParams,
)
from ppsolve.solver.bounds.spans import Spans, busy_ops, in_time
from ppsolve.solver.clock import Clock
from ppsolve.solver.kernels.records import NEVER
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import Column, ImpliedOrder

_STRONG_HEADS: WeakKeyDictionary[ImpliedOrder, IntArray] = WeakKeyDictionary()
"""Kept for the exact model, which starts from the same heads as the bounds."""


class GraphPaths:
    """Longest paths under one graph of precedences.

    `effort`: ends the search for spans of further devices.
    """

    def __init__(
        self, problem: Problem, graph: Dag, effort: BoundsEffort = ENDLESS
    ) -> None:
        self._problem, self._graph, self._effort = problem, graph, effort

    @cached_property
    def heads(self) -> IntArray:
        """Earliest starts, int64[n] in ticks."""
        return start_heads(self._problem, self._graph)

    @cached_property
    def tails(self) -> IntArray:
        """Least times from starts to the end, int64[n] in ticks."""
        return end_tails(self._problem, self._graph)

    @cached_property
    def spans(self) -> Spans:
        """Heads and tails relative to each device."""
        return Spans(self._problem, self._graph, self._effort)

    def longest(self) -> Reason:
        """Return the longest path of all ops."""
        return Reason(int((self.heads + self.tails).max(initial=0)))

    def works(self) -> Iterator[Reason]:
        """Yield least head + load + least tail of each resource that is ever busy."""
        problem, duration = self._problem, self._problem.duration
        op = np.repeat(np.arange(problem.num_ops), np.diff(problem.resource_ptr))
        busy = duration[op] > 0
        op, resource = op[busy], problem.resource_idx[busy]
        head, tail = np.full((2, problem.num_resources), NEVER, dtype=np.int64)
        work = np.zeros_like(head)
        np.minimum.at(head, resource, self.heads[op])
        np.minimum.at(tail, resource, (self.tails - duration)[op])
        np.add.at(work, resource, duration[op])
        for number in np.flatnonzero(work).tolist():
            yield Reason(int(head[number] + work[number] + tail[number]), number)


class Block(NamedTuple):
    """Two ops that may run as one, by their columns."""

    first: Column
    second: Column  # of an earlier row, and behind the first one in a row
    inside: frozenset[Column]  # loose work of the second one that is done, too
    ticks: int


class Relaxations:
    """A problem as every bound sees it; what several bounds use is made once, when first used.

    `implied`: the problem, n ops, and its implied order: graphs ``plain``, ``ordered``
        and ``full``.
    `clock`: costly parts are cut short once it is over, still validly; by default
        never.
    """

    def __init__(
        self,
        implied: ImpliedOrder,
        clock: Clock | None = None,
        params: BoundsParams = DEFAULT_PARAMS,
    ) -> None:
        self.implied = implied
        self._effort = BoundsEffort(clock or Clock(), params)
        self.clock, self.params = self._effort
        self.problem = implied.problem
        self.lower = 0  # largest bound so far, in ticks: what raises none may end early
        self._one_machine: dict[tuple[int, int], Reason] = {}

    @cached_property
    def blocks(self) -> Sequence[Block]:
        """Pairs of columns whose ops may run as one."""
        return ()

    @property
    def is_on_spans(self) -> bool:
        """Whether device spans are minimised, not the makespan."""
        return self.problem.objective is Objective.DEVICE_SPAN

    @cached_property
    def paths(self) -> Paths | None:
        """The flow of unequal micro-batches; index order says more of those that are all alike."""
        problem = self.problem
        if problem.objective is not Objective.MAKESPAN:
            return None
        count = int(problem.microbatch.max(initial=-1)) + 1
        if count == max(map(len, problem.families), default=0):
            return None
        flow = flow_of(problem)
        return None if flow is None else Paths(flow)

    @cached_property
    def plain(self) -> GraphPaths:
        """Longest paths under the problem's own precedences."""
        return GraphPaths(self.problem, self.implied.plain, self._effort)

    @cached_property
    def ordered(self) -> GraphPaths:
        """Longest paths under index order."""
        if self.implied.ordered is self.implied.plain:
            return self.plain
        return GraphPaths(self.problem, self.implied.ordered, self._effort)

    @cached_property
    def full(self) -> GraphPaths:
        """Longest paths under all implied precedences."""
        if self.implied.full is self.implied.ordered:
            return self.ordered
        return GraphPaths(self.problem, self.implied.full, self._effort)

    @cached_property
    def strong_heads(self) -> IntArray:
        """Earliest starts under all implied precedences and memory work, int64[n] in ticks."""
        if self.implied in _STRONG_HEADS:
            return _STRONG_HEADS[self.implied]
        heads = self.memory_work.raise_heads(self.full.heads)
        if not self.clock.is_over:
            _STRONG_HEADS[self.implied] = heads
        return heads

    @cached_property
    def memory_work(self) -> MemoryWork:
        """Raises heads by the work which makes room."""
        return MemoryWork(self.implied, self._effort)

    @cached_property
    def _busy(self) -> list[IntArray]:
        return busy_ops(self.problem)

    def one_machine(self, heads: IntArray, tails: IntArray) -> Reason:
        """Return the largest preemptive bound of a resource on the makespan.

        Tails run from starts to the end. Heads and tails are arrays of this object, by whose
        identities bounds are kept.
        """
        key = id(heads), id(tails)
        if key not in self._one_machine:
            duration = self.problem.duration
            behind = tails - duration
            busy = [(number, ops) for number, ops in enumerate(self._busy) if len(ops)]
            self._one_machine[key] = largest(
                Reason(
                    preemptive_bound(heads[ops], duration[ops], behind[ops]), resource
                )
                for resource, ops in in_time(busy, self.clock)
            )
        return self._one_machine[key]

    def with_returns(self, heads: IntArray, moments: int) -> Reason:
        """Return the largest preemptive or first-return bound of a resource on the makespan.

        Heads are an array of this object; returns are counted at so many moments.
        """
        tails = self.full.tails - self.problem.duration
        returns = (
            Reason(
                return_bound(
                    self.problem, order, self._busy[resource], heads, tails, moments
                ),
                resource,
            )
            for order in in_time(self.implied.pools, self.clock)
            for resource in acquiring(self.problem, order)
        )
        return largest((self.one_machine(heads, self.full.tails), *returns))


def start_heads(problem: Problem, graph: Dag) -> IntArray:
    """Return the earliest start of every op, by release times and pinned starts too."""
    return graph.heads(np.maximum(problem.release, problem.pinned))


def end_tails(problem: Problem, graph: Dag) -> IntArray:
    """Return the least time from the start of every op to the end of the last op after it."""
    return graph.tails(problem.duration)


def work_bound(problem: Problem) -> int:
    """Return the bound ``work`` on the makespan in ticks, which counts fill and drain."""
    return largest(GraphPaths(problem, Dag.of(problem)).works()).value
