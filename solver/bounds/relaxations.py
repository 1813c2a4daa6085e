"""The parts of a problem that bounds count from: earliest starts under ever stronger rules."""

from __future__ import annotations

from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.solver.bounds.memory_work import MemoryWork
from ppsolve.solver.bounds.reason import Reason
from ppsolve.solver.bounds.spans import Spans
from ppsolve.solver.clock import Clock
from ppsolve.solver.structure.dag import Dag
from ppsolve.solver.structure.implied import ImpliedOrder

_STRONG_HEADS: WeakKeyDictionary[ImpliedOrder, IntArray] = WeakKeyDictionary()
"""Kept for the exact model, which starts from the same heads as the bounds: on 2,880 ops they took
1.9 of the 2.8 s until the search began."""


class Relaxations:
    """A problem as every bound sees it; what several bounds use is made once, when first used.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem, n ops, and its implied order: graphs ``plain``, ``ordered`` and ``full``.
    clock : Clock, optional
        Costly parts are cut short once it is over, still validly; by default never.

    Attributes
    ----------
    one_machine : dict of (int, int) to Reason
        One-machine bounds by the identities of heads and tails: rules share them where implied
        precedences add nothing.
    """

    def __init__(self, implied: ImpliedOrder, clock: Clock | None = None) -> None:
        self.implied = implied
        self.clock = clock or Clock()
        self.problem = implied.problem
        self.one_machine: dict[tuple[int, int], Reason] = {}

    @cached_property
    def plain_heads(self) -> IntArray:
        """Earliest starts under the problem's own precedences, int64[n] in ticks."""
        return start_heads(self.problem, self.implied.plain)

    @cached_property
    def plain_tails(self) -> IntArray:
        """Least times from starts to the end under these, int64[n] in ticks."""
        return end_tails(self.problem, self.implied.plain)

    @cached_property
    def ordered_heads(self) -> IntArray:
        """Earliest starts under index order, int64[n] in ticks."""
        if self.implied.ordered is self.implied.plain:
            return self.plain_heads
        return start_heads(self.problem, self.implied.ordered)

    @cached_property
    def full_heads(self) -> IntArray:
        """Earliest starts under all implied precedences, int64[n] in ticks."""
        if self.implied.full is self.implied.ordered:
            return self.ordered_heads
        return start_heads(self.problem, self.implied.full)

    @cached_property
    def strong_heads(self) -> IntArray:
        """Earliest starts under all implied precedences and memory work, int64[n] in ticks."""
        if self.implied in _STRONG_HEADS:
            return _STRONG_HEADS[self.implied]
        heads = self.memory_work.raise_heads(self.full_heads)
        if not self.clock.is_over:
            _STRONG_HEADS[self.implied] = heads
        return heads

    @cached_property
    def memory_work(self) -> MemoryWork:
        """What raises heads by the work which makes room."""
        return MemoryWork(self.implied, self.clock)

    @cached_property
    def ordered_tails(self) -> IntArray:
        """Least times from starts to the end under index order, int64[n] in ticks."""
        if self.implied.ordered is self.implied.plain:
            return self.plain_tails
        return end_tails(self.problem, self.implied.ordered)

    @cached_property
    def full_tails(self) -> IntArray:
        """Least times from starts to the end under all implied precedences, int64[n] in ticks."""
        if self.implied.full is self.implied.ordered:
            return self.ordered_tails
        return end_tails(self.problem, self.implied.full)

    @cached_property
    def plain_spans(self) -> Spans:
        """Device spans under the problem's own precedences."""
        return Spans(self.problem, self.implied.plain, self.clock)

    @cached_property
    def ordered_spans(self) -> Spans:
        """Device spans under index order."""
        if self.implied.ordered is self.implied.plain:
            return self.plain_spans
        return Spans(self.problem, self.implied.ordered, self.clock)

    @cached_property
    def full_spans(self) -> Spans:
        """Device spans under all implied precedences."""
        if self.implied.full is self.implied.ordered:
            return self.ordered_spans
        return Spans(self.problem, self.implied.full, self.clock)


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
