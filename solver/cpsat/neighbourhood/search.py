"""Search that solves one stretch of a schedule after the other by CP-SAT."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ppsolve.models.core.problem import IntArray
from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.bounds import best_bound, lower_bounds
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.engine import solve
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.model import index_ordered
from ppsolve.solver.cpsat.neighbourhood.holding import hold_full
from ppsolve.solver.cpsat.neighbourhood.part import FixedOrderGraph, Subproblem
from ppsolve.solver.kernels.stretch import Aim
from ppsolve.solver.structure.implied import ImpliedOrder

FIRST_OPS, FIRST_SHARE = 100, 1 / 25
"""Ops of the first stretches, at least, and share of all ops. On an uneven 16 x 64 (3,072 ops) all
stretches of 100 ops took 0.2 s of CPU time and gave the first six better schedules; the share keeps
a pass over 50,000 ops at about 50 stretches."""

GROWTH = 1.25
"""Factor by which stretches grow once none of their size gives a better schedule. From eight
schedules of V 16 x 48 at 1.375p on which searches were stuck, 0.308 % above the bound, 11 of 16
searches of 10 s found a better one by stretches of 230 ops, 8 by 276, 8 by 345: each further size
is another try, and shorter ones take less time. With 1.5 no length between 184 and 276 is tried."""

MOST_SHARE = 0.75
"""Share of all ops that a stretch has at most: more is the whole problem, which the exact search is
asked about. An uneven 16 x 24 was refuted 161 times at this size within 10 s of CPU time."""

UNITS = 0.3
"""Deterministic time of one stretch, doubled where most are left open or none may grow. On the same
16 x 64 none of 20 stretches up to 757 ops was left open by it, each within 2 s of CPU time; of a
16 x 24 with memory for 8, two of 33 were, of 757 and 1,135 ops."""

BASE_SHARE = 0.01
"""Share of `UNITS` that any stretch counts as besides, so that a search with a limit ends; building
a stretch of 300 ops and its bounds takes some 5 ms, a hundredth of what CP-SAT may take."""

STEPS = 4
"""Stretches of a pass that each op is in. One that is refuted may give something a few ops further:
from eight schedules of V 16 x 48 at 1.375p on which searches with 2 were stuck, 0.308 % above the
bound, 16 searches of 10 s by stretches of 276 ops came to 0.307 % on average with 2, three of them
below 0.308, to 0.290 with 4, seven below, and to 0.295 with 8, five below."""

SLANTS = (0, 1, -1)
"""Borders of stretches: at one moment, or after a micro-batch as it goes from device to device, so
that a stretch of few ops has all that holds it up. Device spans, with 0 alone and with all, percent
above the bound: V 8 x 24 at 1.25p 0.64 and 0.42 after 8 s of CPU time, 16 x 48 at 1.375p 0.65 and
0.56 after 15 s, at 1.25p 0.22 and 0.24; two uneven 16 x 64 (makespan) 0.23 either way."""

HELD_GAIN, LEAST_GAIN, LEAST_STEP = 0.25, 0.12, 0.04
"""Shares of the gap: how far to shorten paths from devices that are not full (`hold_full`), what a
stretch must be able to gain by itself to be asked that instead, and least gain of a held one. One
search of V 16 x 48, percent above the bound: 1.375p 0.31 to 0.38 after 50 s where nothing is held
(eight seeds), 0.25 to 0.32 with these (eight, four below 0.29), 0.31 to 0.39 with 0.4, 0.2 and 0.07
(six); 40 s at 1.25p 0.33 and 0.24, at 1.5p 0.16 and 0.09, at 1.125p 0.47 either way. Three uneven
pipelines ended within 0.07 of each other."""

Exchange = Callable[[Schedule | None], Schedule | None]
"""Takes a better schedule, or None where there is none, and gives one that was found elsewhere."""


@dataclass(frozen=True, eq=False)
class _Question:
    """What to ask about a stretch.

    Parameters
    ----------
    part : Subproblem
        The stretch.
    target : int
        Makespan of its problem to reach, in ticks.
    most : int
        Value of the whole schedule then, at most, in ticks.
    bound : int
        A lower bound on that makespan, in ticks.
    """

    part: Subproblem
    target: int
    most: int
    bound: int


def _bound(part: Subproblem, enough: int) -> int:
    """Return a lower bound on the makespan of a part, not the best one where `enough` is proved."""
    return best_bound(lower_bounds(part.implied, enough=enough)).value


@dataclass
class Counts:
    """What became of the stretches of one pass or more."""

    bounded: int = 0
    refuted: int = 0
    left_open: int = 0
    better: int = 0


@dataclass
class WindowLNS:
    """A search for better schedules, stretch by stretch of the sequence of starts.

    Bounds refute most stretches in a millisecond, CP-SAT many others: so they grow until they
    are hard, and begin to grow again from nowhere else. Where a stretch can gain little, as some
    device is busy all the time, the paths from other devices are shortened instead. What CP-SAT
    refuted is passed over until its order changes, or nothing else gives anything.

    Parameters
    ----------
    implied : ImpliedOrder
        A problem without an `obstacle`.
    best : Schedule
        A feasible schedule.
    bound : int
        A lower bound in ticks; the search ends where it is met.
    limits : SearchLimits
        Limits of the whole search.
    exchange : callable, optional
        Told of better schedules, and asked for those of others.
    """

    implied: ImpliedOrder
    best: Schedule
    bound: int
    limits: SearchLimits
    exchange: Exchange | None = None
    spent: float = 0.0
    is_interrupted: bool = False
    is_exhausted: bool = False
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        """Begin with small stretches."""
        self._clock: Clock = self.limits.start()
        self._random = random.Random(self.limits.seed)
        ops = self.implied.problem.num_ops
        self._most = max(1, int(MOST_SHARE * ops))
        self._ops = min(self._most, max(FIRST_OPS, int(FIRST_SHARE * ops)))
        self._units = UNITS
        self._places: list[tuple[int, int]] = []
        self._has_stalled = self._is_patient = False
        self._refuted = np.zeros(ops, dtype=np.bool_)
        self._asks_again = self._has_passed_over = False
        self._gained = 0.0
        self._keep(self.best)

    @property
    def is_over(self) -> bool:
        """Whether the bound is met, or a limit, or no stretch is open."""
        units = self.limits.deterministic
        used_up = units is not None and self.spent >= units
        met = self.best.value <= self.bound
        ended = self.is_exhausted or self.is_interrupted
        return met or used_up or ended or self._clock.is_over

    def go_on(self, clock: Clock) -> None:
        """Search on until it is over, or a clock is."""
        self._clock = clock
        self.run()

    def climb(self, clock: Clock, *, is_patient: bool) -> bool:
        """Search on until a pass over the schedule brings nothing; return whether that is so.

        Parameters
        ----------
        clock : Clock
            Ends the search before.
        is_patient : bool
            Such a pass counts only once the search has gone on from its best schedule for as long
            as it took to find that.

        Returns
        -------
        bool
            False where the clock or the whole search is over before.
        """
        self._clock, self._has_stalled, self._is_patient = clock, False, is_patient
        while not (self.is_over or self._has_stalled):
            self._step()
        return self._has_stalled

    def run(self) -> Schedule:
        """Search until it is over; return the best schedule."""
        while not self.is_over:
            self._step()
        return self.best

    def _step(self) -> None:
        """Try the next stretch; after a pass that brought nothing make them longer."""
        if not self._places:
            self._begin_pass()
        first, slant = self._places.pop()
        last = min(first + self._ops, self.implied.problem.num_ops)
        if self._is_refuted(self._whole.sequence(slant)[max(first, 0) : last]):
            self._has_passed_over = True
        else:
            self._try(max(first, 0), last, slant)
        self._trade(None)
        if not self._places:
            self._end_pass()

    def _begin_pass(self) -> None:
        """Plan stretches of one size that overlap, in random order, all over the schedule.

        A pass that is cut short by the end of a turn goes on in the next one.
        """
        self._before, self._counted = self.best.value, replace(self.counts)
        ops, step = self.implied.problem.num_ops, max(1, self._ops // STEPS)
        for slant in SLANTS if self._whole.slope else SLANTS[:1]:
            shift = self._random.randrange(step)
            self._places += [(first, slant) for first in range(-shift, ops - shift, step)]
        self._random.shuffle(self._places)
        self._has_passed_over = False

    def _end_pass(self) -> None:
        """Plan what follows a pass: longer stretches once no stretch of a size gives anything."""
        is_better = self.best.value < self._before
        is_time = not self._is_patient or self.spent >= 2 * self._gained
        self._has_stalled = not is_better and is_time
        self._asks_again = not is_better and self._has_passed_over
        if not (is_better or self._asks_again):
            self._grow(self._counted)
            self._refuted[:] = False

    def _is_refuted(self, ops: IntArray) -> bool:
        """Whether a stretch is passed over: CP-SAT refuted others with all ops of its middle."""
        edge = len(ops) // 4
        return not self._asks_again and bool(self._refuted[ops[edge : len(ops) - edge]].all())

    def _try(self, first: int, last: int, slant: int) -> None:
        """Look for a better order of one stretch."""
        self.spent += BASE_SHARE * UNITS
        aim = self._aim()
        # Of 1,046 stretches of V 16 x 48 at 1.375p this refutes 848, bounds of the part 51 more.
        if self._whole.refutes(first, last, slant, aim):
            self.counts.bounded += 1
            return
        part = self._whole.part(first, last, slant)
        question = self._question(part, aim)
        if question.bound > question.target:
            self.counts.bounded += 1
            return
        units = self.limits.deterministic
        limits = replace(
            self.limits,
            clock=self._clock,
            deterministic=self._units if units is None else min(self._units, units - self.spent),
            workers=1,
            gap=0.0,
            seed=self._random.randrange(2**31),
            dynamic_orders=True,
            is_short=True,
        )
        answer = solve(
            question.part.implied,
            lower=question.bound,
            incumbent=None,
            upper=question.target,
            limits=limits,
        )
        self.spent += answer.deterministic_time
        self.is_interrupted = answer.stop_reason is StopReason.INTERRUPTED
        if answer.infeasible:
            self.counts.refuted += 1
            self._refuted[part.ops] = True
        elif answer.schedule is None or not self._accept(
            question.part.put_back(answer.schedule), question.most
        ):
            self.counts.left_open += 1
        else:
            self.counts.better += 1
            self._refuted[part.ops] = False

    def _aim(self) -> Aim:
        """Return the aim of stretches of the present length."""
        known, gap = self._whole.schedule.value + self._whole.shift, self.best.value - self.bound
        # The search is exhausted once no longest stretch has a better schedule, however little.
        if self._ops == self._most:
            return Aim(known, 1, known, 1)
        step = max(1, int(LEAST_STEP * gap))
        return Aim(known, int(LEAST_GAIN * gap) + 1, known - int(HELD_GAIN * gap), step)

    def _question(self, part: Subproblem, aim: Aim) -> _Question:
        """Return the question about a stretch: a better schedule, or shorter paths for one."""
        bound = _bound(part, aim.known - aim.least + 1)
        if aim.known - bound >= aim.least:
            return _Question(part, aim.known - 1, self.best.value - 1, bound)
        held = hold_full(part, aim.goal)
        if held is None:
            return _Question(part, aim.known - 1, self.best.value - 1, _bound(part, aim.known))
        target = held.value - aim.step
        return _Question(held.part, target, self.best.value, _bound(held.part, target + 1))

    def _accept(self, found: Schedule, most: int) -> bool:
        """Keep a schedule if it is valid and no longer than asked for."""
        # Amounts of memory without a small scale are rounded in the model.
        if found.value > most or check_schedule(found.problem, found):
            return False
        before = self.best.value
        self._keep(found)
        if self.best.value < before:
            self._gained = self.spent
            self._trade(self.best)
        return True

    def _trade(self, better: Schedule | None) -> None:
        other = None if self.exchange is None else self.exchange(better)
        if other is not None:
            self.adopt(other)

    def adopt(self, other: Schedule) -> None:
        """Go on from a schedule that was found elsewhere if it is better, with stretches as long.

        Parameters
        ----------
        other : Schedule
            A feasible schedule.
        """
        if other.value < self.best.value:
            self._keep(other)
            self._refuted[:] = False
            self._gained = self.spent

    def _keep(self, schedule: Schedule) -> None:
        self._whole = FixedOrderGraph(self.implied, index_ordered(self.implied, schedule))
        self.best = min(schedule, self._whole.schedule, key=lambda known: known.value)

    def _grow(self, before: Counts) -> None:
        """Make stretches longer, or the effort for each larger where most are left open."""
        refuted = self.counts.refuted - before.refuted
        left_open = self.counts.left_open - before.left_open
        if self._ops < self._most and left_open <= refuted:
            self._ops = min(self._most, int(GROWTH * self._ops))
        elif left_open:
            self._units *= 2
        else:
            self.is_exhausted = True
