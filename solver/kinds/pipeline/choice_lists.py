"""List schedules of choices of a pipeline, by which choices are rated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

from ppsolve.models.core.dag import Edges
from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import DeadlockError, MemoryDeadlockError
from ppsolve.models.kinds.pipeline.labels import RECOMPUTE_KIND
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.heuristics.list_scheduling import (
    PriorityRule,
    backward_first,
    fillers,
    generate_parallel,
    longest_tail,
)
from ppsolve.solver.kinds.pipeline.reloads import has_reloads, reloads_in_time
from ppsolve.solver.structure.implied import index_order

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

WAYS = tuple(product(range(len(RULES)), (False, True)))
"""Each rule with reloads that start when they can, and just in time."""

FIRST_CHOICES, FEW_RULES = 12, 3
"""Choices that are rated by all rules, and rules that rate the others."""


def valid_lists(
    problem: Problem, rules: Iterable[tuple[PriorityRule, *tuple[Edges, ...]]]
) -> Iterator[tuple[int, Schedule]]:
    """Yield the list schedules of a choice that break no rule.

    `problem`: the problem of the choice.
    `rules`: each with precedences that it keeps beside those of the problem.
    Yields: place of the rule, and its schedule; nothing of a rule that gets stuck.
    """
    edges = index_order(problem)
    for place, (rule, *further) in enumerate(rules):
        try:
            made = generate_parallel(problem, rule, edges, *further)
        except (MemoryDeadlockError, DeadlockError):
            continue
        if not check_schedule(problem, made):
            yield place, made


class ChoiceLists:
    """The best of a few list schedules of each choice.

    Once some choices are known, only the rules that did best are tried.
    """

    def __init__(self) -> None:
        self._wins: Counter[tuple[int, bool]] = Counter()
        self._rated = 0

    def schedule(self, problem: Problem) -> Schedule | None:
        """Return the best list schedule of the problem of a choice, None where all get stuck."""
        in_time = (reloads_in_time(problem),) if has_reloads(problem) else ()
        ways = [way for way in WAYS if in_time or not way[1]]
        ways.sort(key=lambda way: -self._wins[way])
        if self._rated >= FIRST_CHOICES:
            ways = ways[:FEW_RULES]
        rules = (
            (_rule(problem, RULES[rule]), *(in_time if is_in_time else ()))
            for rule, is_in_time in ways
        )
        schedules = dict(valid_lists(problem, rules))
        self._rated += 1
        if not schedules:
            return None
        value = min(schedule.value for schedule in schedules.values())
        winners = [
            place for place, schedule in schedules.items() if schedule.value == value
        ]
        self._wins.update(ways[place] for place in winners)
        return schedules[min(winners, key=lambda place: WAYS.index(ways[place]))]


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
