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
            for part in self.parts[-1:]:
                self._close(part)
            while not self.is_over and self._grow():
                self._close(self.parts[-1])
                self._ask_whole()
        while not self.is_over and any(self._is_open(part) for part in self.parts):
            self._units *= 2
            self._ask_whole()
            for part in self.parts:
                self._close(part)
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
        known = self.parts[-1] if self.parts else self._opened(())
        if len(known.part.resources) + 1 >= len(self._machines.resources):
            return False
        part = self._next(known)
        # Which device is the next one was not looked at to the end: a later call does it anew.
        if self.is_over and self._is_open(part):
            return False
        self.parts.append(part)
        return True

    def _opened(self, resources: tuple[int, ...]) -> Open:
        part = self._machines.part(resources)
        implied = ImpliedOrder(part.problem)
        self.spent += self.params.base_units
        if not resources:
            return Open(part, implied, part.of(self.best))
        self._raise(best_bound(lower_bounds(implied)).value)
        known, steps = part.of(self.best), self.params.steps * len(resources)
        with suppress(MemoryDeadlockError):
            known = min(
                known, list_tail(part.problem), key=lambda schedule: schedule.value
            )
        # The optimum of a part may be below the bound of the whole, where it is of no use.
        own = Board.with_target(known, self.lower)
        return Open(
            part,
            implied,
            order_search(known, Effort(self._clock, board=own), steps=steps),
        )

    def _next(self, known: Open) -> Open:
        most = self._machines.most_violated(known.part, known.best)
        if not known.part.resources:
            return self._longest([(most[0],)])
        chosen: list[Open] = []
        step = self.params.candidates
        for first in range(0, len(most), step):
            lower, few = self.lower, most[first : first + step]
            chosen.append(self._longest([(*known.part.resources, r) for r in few]))
            if chosen[-1].best.value > lower or self.is_over:
                return chosen[-1]
        return chosen[0]

    def _longest(self, tried: list[tuple[int, ...]]) -> Open:
        lower = self.lower
        parts = [self._opened(resources) for resources in tried]
        for part in sorted(parts, key=lambda part: -part.best.value):
            if self._is_open(part) and not self.is_over:
                self._ask(part, part.best.value - 1, self.params.quick)

        def least(part: Open) -> int:
            return lower if self._is_open(part) else part.best.value

        return max(parts, key=lambda part: (least(part), part.best.value))

    def _is_open(self, part: Open) -> bool:
        return part.best.value > self.lower

    def _close(self, part: Open) -> None:
        refused: int | None = None
        if self.best.value < part.best.value:
            part.best = part.part.of(self.best)
        while self._is_open(part) and not self.is_over:
            if refused is None:
                target = part.best.value - 1
            elif (
                refused - self.lower
            ) * self.params.finest <= self.best.value - self.lower:
                return
            else:
                target = (self.lower + refused) // 2
            if not self._ask(part, target):
                refused = target

    def _ask(self, part: Open, target: int, effort: float = 1.0) -> bool:
        question = Question(self.lower, upper=target)
        answer = self.answer(part.implied, question, effort * self._units)
        found = answer.schedule
        if found is not None and found.value < part.best.value:
            part.best = found
        self._raise(target + 1 if answer.infeasible else min(answer.bound or 0, target))
        return answer.infeasible or found is not None

    def _raise(self, bound: int) -> None:
        self.board.raise_bound(bound, FEW_DEVICES)
