"""The problems of the choices of modes of one pipeline, and quick schedules of them."""

from __future__ import annotations

from collections import Counter

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline, scale_of
from ppsolve.models.kinds.pipeline.mode_ops import RECOMPUTE_KIND
from ppsolve.models.kinds.pipeline.modes import MemoryModes
from ppsolve.solver.bounds.registry import quick_bounds
from ppsolve.solver.bounds.relaxations import Relaxations
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    backward_first,
    fillers,
    longest_tail,
)
from ppsolve.solver.kinds.pipeline.chosen import valid_lists
from ppsolve.solver.structure.holds import MemoryInfeasible
from ppsolve.solver.structure.implied import ImpliedOrder

INFEASIBLE = 2**62
"""Stands for the bound of a choice that memory makes impossible, in ticks."""


RULES = (
    (False, False, True, True),
    (False, False, True, False),
    (False, False, False, True),
    (False, True, True, False),
    (False, True, False, True),
    (True, False, True, True),
    (True, False, True, False),
    (True, False, False, True),
)
"""List rules: backwards first or the longest tail; recomputing only where the device would idle;
`reserve` and `promise` of `PriorityRule`, without which less memory is left unused."""

FIRST_CHOICES, FEW_RULES = 12, 3
"""Choices that are rated by all rules, and rules that rate the others."""


class ModeProblems:
    """Problems of all choices, with one tick.

    `modes`: the modes of a pipeline.
    """

    def __init__(self, modes: MemoryModes, scale: TimeScale | None = None) -> None:
        self.modes = modes
        self.instance = modes.instance
        self.scale = scale or scale_of(self.instance, exact=False)
        self._wins: Counter[int] = Counter()
        self._rated = 0

    def problem(self, choice: IntArray) -> Problem:
        """Return the problem of a choice, int64[S, m], which may be `RELAXED` in places."""
        return lower_pipeline(self.instance, scale=self.scale, choice=choice)

    def bound(self, implied: ImpliedOrder, enough: int = INFEASIBLE) -> int:
        """Return the best analytic bound of a choice.

        `implied`: the problem of the choice.
        `enough`: ticks; no rule is begun once one has proved as much.
        Returns: ticks; `INFEASIBLE` where memory holds too little.
        """
        try:
            _ = implied.full
            best = 0
            for found in quick_bounds(Relaxations(implied)):
                best = max(best, found.value)
                if best >= enough:
                    break
            return best
        except MemoryInfeasible:
            return INFEASIBLE

    def schedule(self, choice: IntArray) -> Schedule | None:
        """Return the best of a few list schedules of a choice, None where all get stuck.

        Once some choices are known, only the rules that did best are tried.
        """
        problem = self.problem(choice)
        numbers = sorted(range(len(RULES)), key=lambda number: -self._wins[number])
        if self._rated >= FIRST_CHOICES:
            numbers = numbers[:FEW_RULES]
        rules = (_rule(problem, RULES[number]) for number in numbers)
        made = valid_lists(problem, rules)
        found = [(each.value, numbers[place], each) for place, each in made]
        self._rated += 1
        if not found:
            return None
        value, _, best = min(found)
        for each, number, _ in found:
            self._wins[number] += each == value
        return best


def _rule(problem: Problem, rule: tuple[bool, bool, bool, bool]) -> PriorityRule:
    is_backward_first, is_late, reserve, promise = rule
    filler = fillers(problem)
    if is_late:
        filler = filler | problem.kind_mask(RECOMPUTE_KIND)
    if is_backward_first:
        rank = backward_first(problem)
        return PriorityRule(rank, filler, reserve=reserve, promise=promise)
    rank = longest_tail(problem)
    return PriorityRule(
        rank, filler, 1.0, 1.0, frees_memory=True, reserve=reserve, promise=promise
    )
