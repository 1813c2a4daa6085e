"""Large neighbourhood search over windows of a schedule, solved by CP-SAT."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.model import index_ordered
from ppsolve.solver.exact.params import WindowParams
from ppsolve.solver.exact.question import NEIGHBOURHOODS, Question
from ppsolve.solver.exact.search import QuestionSearch
from ppsolve.solver.exact.subproblem import FixedOrderGraph, Subproblem, hold_full

SLANTS = (0, 1, -1)
"""Borders of windows: at one moment, or moving from device to device with a micro-batch."""


class _Aim(NamedTuple):
    """What a window has to gain, in ticks."""

    known: int  # longest path of the schedule
    least: int  # what a window must be able to gain by itself; if not, full devices are held
    goal: int  # below this, paths from devices that are not held need not fall
    step: int  # by which those paths are to be shortened


class _WindowQuestion(NamedTuple):
    part: Subproblem
    target: int  # makespan of its problem to reach
    most: int  # value of the whole schedule then, at most
    bound: int  # a lower bound on that makespan


def _bound(window: Subproblem, enough: int) -> int:
    return best_bound(lower_bounds(window.implied, enough=enough)).value


@dataclass
class Counts:
    """Outcomes of windows of one pass or more."""

    bounded: int = 0
    refuted: int = 0
    left_open: int = 0
    better: int = 0


@dataclass
class WindowLNS(QuestionSearch):
    """Large neighbourhood search: window by window of the sequence of starts, solved by CP-SAT.

    Bounds refute most windows in a millisecond, CP-SAT many others: so they grow until they are
    hard. Where a window can gain little, as some device is busy all the time, the paths from other
    devices are shortened instead. Refuted windows are passed over until their order changes, or
    nothing else gives anything.
    """

    params: WindowParams = WindowParams()  # sizes and budgets
    is_exhausted: bool = False
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        """Begin with small windows."""
        super().__post_init__()
        self._random = random.Random(self.limits.seed)
        ops, params = self.implied.problem.num_ops, self.params
        self._most = max(1, int(params.most_share * ops))
        self._ops = min(
            self._most, max(params.first_ops, int(params.first_share * ops))
        )
        self._units = params.units
        self._places: list[tuple[int, int]] = []
        self._taken = self.board.incumbent
        assert self.board.schedule is not None
        self._keep(self.board.schedule)

    @property
    def is_over(self) -> bool:
        """Whether the bound is met, or a limit, or no window is open."""
        met = self.best.value <= self.board.bound.value or self.board.is_good_enough
        return met or self.is_exhausted or self.is_used_up

    def run(self, clock: Clock | None = None) -> Schedule:
        """Search until it is over, or a clock is; a later call goes on from there."""
        self._clock = clock or self._clock
        while not self.is_over:
            self._step()
        return self.best

    def _step(self) -> None:
        if not self._places:
            self._begin_pass()
        first, slant = self._places.pop()
        last = min(first + self._ops, self.implied.problem.num_ops)
        self._try(max(first, 0), last, slant)
        self._take_incumbent()
        if not self._places and self.best.value >= self._before:
            self._grow()

    def _begin_pass(self) -> None:
        self._before, self._counted = self.best.value, replace(self.counts)
        ops, step = (
            self.implied.problem.num_ops,
            max(1, self._ops // self.params.overlap),
        )
        for slant in SLANTS if self._whole.slope else SLANTS[:1]:
            shift = self._random.randrange(step)
            self._places += [
                (first, slant) for first in range(-shift, ops - shift, step)
            ]
        self._random.shuffle(self._places)

    def _try(self, first: int, last: int, slant: int) -> None:
        self.spent += self.params.base_units
        window = self._whole.part(first, last, slant)
        asked, target, limit, bound = self._question(window, self._aim())
        if bound > target:
            self.counts.bounded += 1
            return
        seed, question = self._random.randrange(2**31), Question(bound, upper=target)
        answer = self.answer(
            asked.implied, question, self._units, seed=seed, is_short=True
        )
        if answer.infeasible:
            self.counts.refuted += 1
        elif answer.schedule is None or not self._accept(
            asked.put_back(answer.schedule), limit
        ):
            self.counts.left_open += 1
        else:
            self.counts.better += 1

    def _aim(self) -> _Aim:
        value = self._whole.schedule.value + self._whole.shift
        gap = self.best.value - self.board.bound.value
        # The search is exhausted once no longest window has a better schedule, however little.
        if self._ops == self._most:
            return _Aim(value, 1, value, 1)
        params = self.params
        step = max(1, int(params.least_step * gap))
        gain = int(params.least_gain * gap) + 1
        return _Aim(value, gain, value - int(params.held_gain * gap), step)

    def _question(self, window: Subproblem, aim: _Aim) -> _WindowQuestion:
        # A better schedule, or shorter paths for one.
        better, value = aim.known - 1, self.best.value
        bound = _bound(window, aim.known - aim.least + 1)
        if aim.known - bound >= aim.least:
            return _WindowQuestion(window, better, value - 1, bound)
        held = hold_full(window, aim.goal)
        if held is None:
            return _WindowQuestion(window, better, value - 1, _bound(window, aim.known))
        target = held.value - aim.step
        return _WindowQuestion(held.part, target, value, _bound(held.part, target + 1))

    def _accept(self, schedule: Schedule, limit: int) -> bool:
        # Amounts of memory without a small scale are rounded in the model.
        if schedule.value > limit or check_schedule(schedule.problem, schedule):
            return False
        self._keep(schedule)
        return True

    def _take_incumbent(self) -> None:
        incumbent = self.board.incumbent
        if incumbent is not self._taken and incumbent is not None:
            self._taken = incumbent
            if incumbent.schedule.value < self.best.value:
                self._keep(incumbent.schedule)

    def _keep(self, schedule: Schedule) -> None:
        self._whole = FixedOrderGraph(
            self.implied, index_ordered(self.implied, schedule)
        )
        self.best = min(
            schedule, self._whole.schedule, key=lambda candidate: candidate.value
        )
        value = self.board.value
        if value is None or self.best.value < value:
            self.board.propose(self.best, NEIGHBOURHOODS)
            self._taken = self.board.incumbent

    def _grow(self) -> None:
        refuted = self.counts.refuted - self._counted.refuted
        left_open = self.counts.left_open - self._counted.left_open
        if self._ops < self._most and left_open <= refuted:
            self._ops = min(self._most, int(self.params.growth * self._ops))
        elif left_open:
            self._units *= 2
        else:
            self.is_exhausted = True
