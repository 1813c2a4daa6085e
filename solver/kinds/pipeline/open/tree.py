"""Branch and bound over choices: a node is a plain problem, in which what is open is relaxed."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from itertools import count

from ppsolve.models.core.options import OpenProblem
from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.result import StopReason
from ppsolve.models.kinds.pipeline.modes import CHOSEN_MODES
from ppsolve.solver.board import Board
from ppsolve.solver.bounds.frontier_devices import FrontierDevices
from ppsolve.solver.bounds.params import FrontierParams
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.question import (
    EXACT,
    VARIANTS,
    ExactAnswer,
    Question,
    SearchLimits,
)
from ppsolve.solver.exact.windows import latest_end
from ppsolve.solver.kinds.pipeline.choice_bounds import INFEASIBLE, analytic_bound
from ppsolve.solver.kinds.pipeline.open.decisions import Decision
from ppsolve.solver.kinds.pipeline.open.device_frontiers import DeviceFrontiers
from ppsolve.solver.kinds.pipeline.open.space import Choices, PipelineSpace, is_decided
from ppsolve.solver.run.params import ModesParams
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass(order=True)
class _Branch:
    bound: int
    open_parts: int  # of nodes with one bound those with fewer come first
    number: int
    choices: Choices = field(compare=False)
    is_bounded: bool = field(compare=False, default=True)  # by all rules
    units: float = field(compare=False, default=0.0)  # of its last question


class ChoiceTree:
    """Choices that are not proved away, the least bound first.

    `board`: where schedules and the least bound of all open choices are reported.
    `limits`: limits of the whole search.
    """

    def __init__(
        self,
        space: PipelineSpace,
        board: Board,
        limits: SearchLimits,
        params: ModesParams,
        devices: DeviceFrontiers | None = None,
    ) -> None:
        self._space, self._board, self._limits = space, board, limits
        self._params, self._devices = params, devices
        self._numbers = count()
        self._open: list[_Branch] = []
        self.spent = 0.0

    def run(self, clock: Clock) -> StopReason | None:
        """Branch and ask until all choices are proved away or the clock is over."""
        least = max(
            (self._prepared(decision, clock) for decision in self._space.decisions),
            default=0,
        )
        if least < self._upper:
            self._push(self._space.open, least)
        self._raise_bound()
        while self._open and not self._is_over(clock):
            self._work_on(heapq.heappop(self._open), clock)
            self._raise_bound()
        if not self._open and self._board.value is None:
            self._board.is_refuted = True
            return StopReason.INFEASIBLE
        return None

    def _is_over(self, clock: Clock) -> bool:
        units = self._limits.deterministic
        is_spent = units is not None and self.spent >= units
        return clock.is_over or is_spent or self._board.is_good_enough

    @property
    def _upper(self) -> int:
        value = self._board.value
        return INFEASIBLE if value is None else value

    def _raise_bound(self) -> None:
        while self._open and self._open[0].bound >= self._upper:
            heapq.heappop(self._open)
        bound = self._open[0].bound if self._open else self._upper
        if bound < INFEASIBLE:
            self._board.raise_bound(bound, VARIANTS)

    def _prepared(self, decision: Decision, clock: Clock) -> int:
        def bound(choice: IntArray) -> int:
            return self._quick_bound({**self._space.open, decision.field: choice}, 0)

        return decision.prepare(bound, clock, self._upper, self._params)

    def _bound(self, choices: Choices) -> int:
        problem = self._space.relaxed(choices)
        self.spent += self._params.bound_units * problem.num_ops
        return analytic_bound(ImpliedOrder(problem), self._upper)

    def _quick_bound(self, choices: Choices, least: int) -> int:
        """Return a bound by single devices in their place where there is one."""
        if self._devices is None:
            return max(least, self._bound(choices))
        before = self._devices.steps
        bound = self._devices.bound(choices[CHOSEN_MODES], least, self._upper)
        self.spent += (self._devices.steps - before) / FrontierParams.unit_steps
        self.spent += self._params.device_units
        return bound

    def _push(self, choices: Choices, least: int) -> None:
        bound = self._quick_bound(choices, least)
        if bound < min(self._upper, INFEASIBLE):
            parts, is_bounded = self._space.open_parts(choices), self._devices is None
            node = _Branch(bound, parts, next(self._numbers), choices, is_bounded)
            heapq.heappush(self._open, node)

    def _work_on(self, node: _Branch, clock: Clock) -> None:
        """Branch on choices that are open; ask whether decided ones have a better schedule."""
        if not node.is_bounded:
            before, node.is_bounded = node.bound, True
            node.bound = max(before, self._bound(node.choices))
            if node.bound > before:
                if node.bound < min(self._upper, INFEASIBLE):
                    heapq.heappush(self._open, node)
                return
        is_asked = self._devices is None and not node.units
        few = self._params.asked_groups if is_asked else 0
        if node.open_parts > few:
            branches = self._space.branches(node.choices)
            for number, choices in enumerate(branches):
                if number and clock.is_over:  # what is left of them stays open
                    heapq.heappush(self._open, node)
                    return
                self._push(choices, node.bound)
            if branches:
                return
        self._ask(node, clock)

    def _is_raised(self, node: _Branch, problem: Problem, clock: Clock) -> bool:
        """Bound a node by several devices together; whether that is worth more effort."""
        best = self._board.schedule
        if self._devices is None or best is None:
            return False
        relaxations = Relaxations(ImpliedOrder(problem), clock)
        board, params = Board.beginning(best), FrontierParams()
        steps = int(self._params.joint_steps * node.units)
        search = FrontierDevices(relaxations, board, params, steps)
        search.run()
        self.spent += (steps - search.steps_left) / params.unit_steps
        before, node.bound = node.bound, max(node.bound, board.bound.value)
        return node.bound > before or not search.steps_left

    def _ask(self, node: _Branch, clock: Clock) -> None:
        node.units = 2 * node.units or self._params.question_units
        problem = self._space.problem(node.choices)
        limits = replace(
            self._limits,
            seconds=clock.left if clock.is_limited else None,
            deterministic=node.units,
        )
        blocks = self._space.blocks(problem)
        upper = None if self._board.value is None else self._board.value - 1
        try:
            if self._is_raised(node, problem, clock):
                heapq.heappush(self._open, node)
                return
            if blocks is None:
                answer = _plain_answer(problem, node.bound, upper, limits)
            else:
                answer = _answer_with_blocks(blocks, node.bound, upper, limits)
        except MemoryInfeasible:
            return
        self.spent += answer.deterministic_time
        if answer.infeasible:
            return
        schedule = answer.schedule if is_decided(node.choices) else None
        if schedule is not None and answer.memory_is_exact:
            self._board.propose(schedule, EXACT)
        if answer.bound is not None:
            node.bound = max(node.bound, answer.bound)
        if node.bound < self._upper:
            heapq.heappush(self._open, node)


def _plain_answer(
    problem: Problem, lower: int, upper: int | None, limits: SearchLimits
) -> ExactAnswer:
    from ppsolve.solver.exact.search import solve

    return solve(ImpliedOrder(problem), Question(lower, upper=upper), limits)


def _answer_with_blocks(
    blocks: OpenProblem, lower: int, upper: int | None, limits: SearchLimits
) -> ExactAnswer:
    from ppsolve.solver.exact.search import CpsatSearch, SharedIncumbent
    from ppsolve.solver.kinds.pipeline.options.joint_model import OptionsModel

    if upper is None:
        upper = latest_end(replace(blocks.base, duration=blocks.slowest))
    model = OptionsModel(blocks, lower, upper)
    incumbent = SharedIncumbent(model)
    return CpsatSearch(model, incumbent, limits, limits.start()).execute()
