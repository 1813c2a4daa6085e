"""Branch and bound over the modes of stages: every node is a plain problem, open stages relaxed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.result import StopReason
from ppsolve.solver.board import Board
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import EXACT, Question, SearchLimits
from ppsolve.solver.kinds.pipeline.modes.problems import INFEASIBLE, ModeProblems
from ppsolve.solver.structure.implied import ImpliedOrder

VARIANTS = "variants"
"""Name of the search in reports."""


@dataclass(order=True)
class _Node:
    bound: int
    depth: int  # the fewer open stages, the smaller: leaves of one bound come first
    number: int
    choice: IntArray = field(compare=False)
    asked: float = field(compare=False, default=0.0)  # deterministic time of its last question

    def is_leaf(self) -> bool:
        return bool((self.choice >= 0).all())


class Variants:
    """Open choices with their bounds, the least first.

    Parameters
    ----------
    problems : ModeProblems
        Problems of all choices.
    board : Board
        Where schedules and the least bound of all open choices are reported.
    limits : SearchLimits
        Limits of the whole search.
    units : float
        Deterministic time of the first question about a choice.
    """

    def __init__(
        self, problems: ModeProblems, board: Board, limits: SearchLimits, units: float
    ) -> None:
        self._problems, self._board, self._limits = problems, board, limits
        self._modes = problems.modes
        self._units, self._numbers = units, count()
        self._open: list[_Node] = []
        self._order = self._by_work()
        self.spent = 0.0

    def _by_work(self) -> list[int]:
        """Return stages, those on the device with the most work first."""
        problem = self._problems.problem(self._problems.modes.relaxed)
        work = np.bincount(
            problem.stage[problem.is_compute], weights=problem.duration[problem.is_compute]
        )
        order: list[int] = np.argsort(-work, kind="stable").tolist()
        return order

    def run(self, clock: Clock) -> StopReason | None:
        """Split and ask until all choices are proved away or the clock is over."""
        for choice in self._roots():
            self._push(choice, 0)
        while self._open and not clock.is_over and not self._is_out_of_units():
            self._raise_bound()
            if self._board.is_closed:
                return None
            node = heapq.heappop(self._open)
            if node.bound >= self._upper:
                continue
            heapq.heappush(self._open, node)
            self._work_on(node, clock)
        if not self._open and self._board.value is None:
            return StopReason.INFEASIBLE
        self._raise_bound()
        return None

    @property
    def _upper(self) -> int:
        value = self._board.value
        return INFEASIBLE if value is None else value

    def _is_out_of_units(self) -> bool:
        units = self._limits.deterministic
        return units is not None and self.spent >= units

    def _roots(self) -> Iterator[IntArray]:
        if self._modes.decide in {"all", "window"}:
            yield from self._modes.variants()
        else:
            yield self._problems.modes.relaxed

    def _push(self, choice: IntArray, least: int) -> None:
        bound = self._problems.bound(ImpliedOrder(self._problems.problem(choice)))
        depth = int((choice < 0).any(axis=1).sum())
        if max(bound, least) < min(self._upper, INFEASIBLE):
            heapq.heappush(self._open, _Node(max(bound, least), depth, next(self._numbers), choice))

    def _raise_bound(self) -> None:
        while self._open and self._open[0].bound >= self._upper:
            heapq.heappop(self._open)
        bound = self._open[0].bound if self._open else self._upper
        if bound < INFEASIBLE:
            self._board.raise_bound(bound, VARIANTS)

    def _work_on(self, node: _Node, clock: Clock) -> None:
        """Ask whether the choice has a better schedule; split it where that stays open."""
        heapq.heappop(self._open)
        units = 2 * node.asked if node.asked else self._units
        is_open, bound = self._ask(node, units, clock)
        if not is_open:
            return
        node.bound, node.asked = max(node.bound, bound), units
        if node.is_leaf() or self._modes.decide == "microbatch":
            heapq.heappush(self._open, node)
            return
        stage = next(each for each in self._order if node.choice[each, 0] < 0)
        for mode in range(len(self._modes.names)):
            choice = node.choice.copy()
            choice[stage] = mode
            self._push(choice, node.bound)

    def _ask(self, node: _Node, units: float, clock: Clock) -> tuple[bool, int]:
        """Return whether a better schedule is still possible, and a bound."""
        from ppsolve.solver.exact.search import solve

        implied = ImpliedOrder(self._problems.problem(node.choice))
        upper = None if self._board.value is None else self._board.value - 1
        limits = replace(
            self._limits, seconds=clock.left if clock.is_limited else None, deterministic=units
        )
        answer = solve(implied, Question(node.bound, upper=upper), limits)
        self.spent += answer.deterministic_time
        if answer.infeasible:
            return False, node.bound
        bound = node.bound if answer.bound is None else answer.bound
        if upper is not None and answer.stop_reason is StopReason.PROVED and answer.schedule:
            bound = answer.schedule.value
        if answer.schedule is not None and node.is_leaf() and answer.memory_is_exact:
            self._board.propose(answer.schedule, EXACT)
        return bound < self._upper, bound
