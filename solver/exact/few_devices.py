"""Search for a lower bound: parts of ever more devices, each solved as far as its effort goes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ppsolve.models.core.schedule import Schedule
from ppsolve.models.documents.errors import MemoryDeadlockError
from ppsolve.solver.board import Board
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.exact.device_part import DevicePart, Machines, TooManyWaysError
from ppsolve.solver.exact.params import DeviceParams
from ppsolve.solver.exact.question import EXACT, FEW_DEVICES, Question
from ppsolve.solver.exact.search import QuestionSearch
from ppsolve.solver.heuristics.generic import list_tail
from ppsolve.solver.heuristics.heuristic import Effort
from ppsolve.solver.heuristics.order_search import order_search
from ppsolve.solver.structure.implied import ImpliedOrder


@dataclass
class Open:
    """A part with its best schedule, whose value no smaller part has."""

    part: DevicePart
    implied: ImpliedOrder
    best: Schedule


@dataclass
class FewDevices(QuestionSearch):
    """A search for the least makespan of parts of a problem, which bounds that of the whole.

    A few devices often take as long as all. The first device has the most work between head and
    tail; each next one is among those with least room in the best schedule of the part before, and
    makes the part longest. Questions ask whether a part has a schedule better than its best one,
    then for halves of the gap. Before each device, and for each better schedule, the whole is asked
    the same.
    """

    params: DeviceParams = DeviceParams()  # budgets
    parts: list[Open] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with no device."""
        super().__post_init__()
        self._machines = Machines(self.implied)
        self._units = self.params.units
        self._asked = (0, 0.0)

    @property
    def lower(self) -> int:
        """The best bound in ticks."""
        return self.board.bound.value

    @property
    def best(self) -> Schedule:
        """The best schedule of the whole."""
        assert self.board.schedule is not None
        return self.board.schedule

    @property
    def is_over(self) -> bool:
        """Whether the bound meets the schedule, or a limit is reached."""
        value = self.best.value
        return value - self.lower <= self.limits.gap * value or self.is_used_up

    def run(self) -> int:
        """Search until it is over; return the best bound in ticks."""
        with suppress(TooManyWaysError):
            self._ask_whole()
            for candidate in self.parts[-1:]:
                self._close(candidate)
            while not self.is_over and self._grow():
                self._close(self.parts[-1])
                self._ask_whole()
        while not self.is_over and any(
            self._is_open(candidate) for candidate in self.parts
        ):
            self._units *= 2
            self._ask_whole()
            for candidate in self.parts:
                self._close(candidate)
        return self.lower

    def _ask_whole(self) -> None:
        while not self.is_over and self._asked != (self.best.value, self._units):
            self._asked, target = (self.best.value, self._units), self.best.value - 1
            question, units = (
                Question(self.lower, upper=target),
                self.params.quick * self._units,
            )
            answer = self.answer(self.implied, question, units)
            bound = target + 1 if answer.infeasible else min(answer.bound or 0, target)
            self.board.raise_bound(bound, EXACT)

    def _grow(self) -> bool:
        last = self.parts[-1] if self.parts else self._opened(())
        if len(last.part.resources) + 1 >= len(self._machines.resources):
            return False
        candidate = self._next(last)
        # Which device is the next one was not looked at to the end: a later call does it anew.
        if self.is_over and self._is_open(candidate):
            return False
        self.parts.append(candidate)
        return True

    def _opened(self, resources: tuple[int, ...]) -> Open:
        subset = self._machines.part(resources)
        implied = ImpliedOrder(subset.problem)
        self.spent += self.params.base_units
        if not resources:
            return Open(subset, implied, subset.of(self.best))
        self._raise(best_bound(lower_bounds(implied)).value)
        best, steps = subset.of(self.best), self.params.steps * len(resources)
        with suppress(MemoryDeadlockError):
            best = min(
                best, list_tail(subset.problem), key=lambda schedule: schedule.value
            )
        # The optimum of a part may be below the bound of the whole, where it is of no use.
        board = Board.with_target(best, self.lower)
        return Open(
            subset,
            implied,
            order_search(best, Effort(self._clock, board=board), steps=steps),
        )

    def _next(self, opened: Open) -> Open:
        violated = self._machines.most_violated(opened.part, opened.best)
        if not opened.part.resources:
            return self._longest([(violated[0],)])
        longest: list[Open] = []
        step = self.params.candidates
        for first in range(0, len(violated), step):
            lower, few = self.lower, violated[first : first + step]
            longest.append(self._longest([(*opened.part.resources, r) for r in few]))
            if longest[-1].best.value > lower or self.is_over:
                return longest[-1]
        return longest[0]

    def _longest(self, tried: list[tuple[int, ...]]) -> Open:
        lower = self.lower
        candidates = [self._opened(resources) for resources in tried]
        for candidate in sorted(
            candidates, key=lambda candidate: -candidate.best.value
        ):
            if self._is_open(candidate) and not self.is_over:
                self._ask(candidate, candidate.best.value - 1, self.params.quick)

        def least(candidate: Open) -> int:
            return lower if self._is_open(candidate) else candidate.best.value

        return max(
            candidates, key=lambda candidate: (least(candidate), candidate.best.value)
        )

    def _is_open(self, candidate: Open) -> bool:
        return candidate.best.value > self.lower

    def _close(self, candidate: Open) -> None:
        refused: int | None = None
        if self.best.value < candidate.best.value:
            candidate.best = candidate.part.of(self.best)
        while self._is_open(candidate) and not self.is_over:
            if refused is None:
                target = candidate.best.value - 1
            elif (
                refused - self.lower
            ) * self.params.finest <= self.best.value - self.lower:
                return
            else:
                target = (self.lower + refused) // 2
            if not self._ask(candidate, target):
                refused = target

    def _ask(self, candidate: Open, target: int, effort: float = 1.0) -> bool:
        question = Question(self.lower, upper=target)
        answer = self.answer(candidate.implied, question, effort * self._units)
        schedule = answer.schedule
        if schedule is not None and schedule.value < candidate.best.value:
            candidate.best = schedule
        self._raise(target + 1 if answer.infeasible else min(answer.bound or 0, target))
        return answer.infeasible or schedule is not None

    def _raise(self, bound: int) -> None:
        self.board.raise_bound(bound, FEW_DEVICES)
