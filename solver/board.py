"""The board of a run: the best schedule, the best bound, who found them, and the time left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import RLock

from ppsolve.models.core.problem import FREE
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.checker import check_schedule
from ppsolve.solver.clock import Clock


class WrongScheduleError(Exception):
    """A search found a schedule that the checker refuses, or one below a proved bound."""


@dataclass(frozen=True)
class Bound:
    """A proved lower bound on the objective, and the rule that proves it.

    `name`: name of the rule.
    `resource`: the resource whose ops prove it; `FREE` where several do, or where it is
        not known.
    `others`: further resources whose ops prove it together with those of the first one.
    """

    name: str
    value: int
    resource: int = FREE
    others: tuple[int, ...] = ()


TRIVIAL = Bound("trivial", 0)

TARGET = "target"
"""Name of a value that is good enough: no bound, schedules may be below it."""


@dataclass(frozen=True)
class Incumbent:
    """The best solution so far.

    `value`: its objective, in ticks or in the unit of its kind.
    `by`: name of the search that found it.
    `schedule`: a schedule that the checker accepts.
    `order`: program order, where a schedule counts as the program that it runs as.
    """

    value: int
    by: str
    schedule: Schedule
    order: list[int] | None = None


Admit = Callable[[Schedule, str, "int | None", "list[int] | None"], "Incumbent | None"]
"""Takes a schedule, who found it, the best value and a program order, if it is known; returns what
is kept, None for nothing.

Raises `WrongScheduleError` if the schedule breaks a rule.
"""

Subscriber = Callable[[str, str], None]
"""Told of each change: ``incumbent`` or ``bound``, and the name of what found it."""


def refuse_wrong(schedule: Schedule, by: str) -> None:
    """Raise a `WrongScheduleError` with the search and the first broken rule, if there is one."""
    violations = check_schedule(schedule.problem, schedule)
    if violations:
        raise WrongScheduleError(f"{by}: {violations[0]} ({len(violations)} in all)")


def admit_checked(
    schedule: Schedule, by: str, best: int | None, order: list[int] | None = None
) -> Incumbent | None:
    """Admit a schedule that is better than the best value and that the checker accepts.

    One of the best value or more is left out without a check.
    """
    schedule = schedule.normalised()
    if best is not None and schedule.value >= best:
        return None
    refuse_wrong(schedule, by)
    return Incumbent(schedule.value, by, schedule, order)


class Board:
    """What a run knows. All searches of a run share one board, from any thread.

    Searches read `incumbent` and `bound` when they want, and report by `propose` and `raise_bound`.

    `admit`: checks a schedule and turns it into what its kind keeps.
    `clock`: clock of the run; without a limit by default.
    `gap`: largest (value - bound) / value at which the run may stop.
    `bounds`: the best bound of each rule, in the order in which the rules first raised
        one.
    `failure`: the first error of a search, whose thread may not be the one of the run.
    `units`: deterministic time that searches have spent.
    `is_refuted`: whether a search has proved that there is no schedule.
    """

    def __init__(
        self, admit: Admit = admit_checked, clock: Clock | None = None, gap: float = 0.0
    ) -> None:
        self.clock = clock or Clock()
        self.gap = gap
        self.incumbent: Incumbent | None = None
        self.bound = TRIVIAL
        self.bounds: list[Bound] = []
        self.failure: WrongScheduleError | None = None
        self.units = 0.0
        self.is_refuted = False
        self._admit = admit
        self._subscribers: list[Subscriber] = []
        self._lock = RLock()
        self._is_open = True

    @classmethod
    def beginning(cls, schedule: Schedule | None = None, bound: int = 0) -> Board:
        """Return a board of a search that stands alone, without a clock and without subscribers.

        The search may begin with a valid schedule and a proved lower bound.
        """
        board = cls()
        board.bound = Bound("given", bound)
        if schedule is not None:
            board.incumbent = Incumbent(schedule.value, "given", schedule)
        return board

    @classmethod
    def with_target(cls, schedule: Schedule, target: int) -> Board:
        """Return a board of a search that may end at a target, which is no bound.

        It has a valid schedule to begin with, and neither a clock nor subscribers.
        """
        board = cls.beginning(schedule)
        board.bound = Bound(TARGET, target)
        return board

    @property
    def value(self) -> int | None:
        """The best value, None while there is none."""
        return None if self.incumbent is None else self.incumbent.value

    @property
    def schedule(self) -> Schedule | None:
        """The best schedule, None while there is none."""
        return None if self.incumbent is None else self.incumbent.schedule

    @property
    def is_closed(self) -> bool:
        """Whether the best value is proved."""
        return self.incumbent is not None and self.incumbent.value <= self.bound.value

    @property
    def is_good_enough(self) -> bool:
        """Whether the best value is proved, or within the gap that is asked for."""
        if self.incumbent is None:
            return False
        value, bound = self.incumbent.value, self.bound.value
        return value <= bound or value - bound <= self.gap * value

    def propose(
        self,
        schedule: Schedule,
        by: str,
        *,
        order: list[int] | None = None,
        ties: bool = False,
    ) -> bool:
        """Check a schedule and keep it if it is the best one; return whether it is kept.

        With `ties`, one of equal value is kept too, in the place of the incumbent and under its
        name. Nothing is kept after `close`. A `WrongScheduleError`, noted in `failure` too, says
        that it breaks a rule, or is below the bound.
        """
        incumbent = self.incumbent
        limit = None if incumbent is None else incumbent.value + ties
        try:
            candidate = self._admit(schedule, by, limit, order)
            if candidate is None:
                return False
            with self._lock:
                if not self._keeps(candidate, ties=ties):
                    return False
        except WrongScheduleError as error:
            self.failure = self.failure or error
            raise
        self._tell("incumbent", by)
        return True

    def _keeps(self, candidate: Incumbent, *, ties: bool) -> bool:
        if candidate.value < self.bound.value and self.bound.name != TARGET:
            raise WrongScheduleError(
                f"{candidate.by} found {candidate.value} below the bound {self.bound.value} "
                f"of {self.bound.name}"
            )
        incumbent = self.incumbent
        is_equal = incumbent is not None and candidate.value == incumbent.value
        if not self._is_open or (is_equal and not ties):
            return False
        if incumbent is not None and candidate.value > incumbent.value:
            return False
        self.incumbent = (
            replace(candidate, by=incumbent.by)
            if incumbent is not None and is_equal
            else candidate
        )
        return True

    def raise_bound(
        self, value: int, by: str, resource: int = FREE, *others: int
    ) -> bool:
        """Note a proved lower bound; return whether it is above every other one.

        It is in ticks, or in the unit of the board's values; the ops of resources may prove it.
        """
        with self._lock:
            if not self._is_open:
                return False
            raised = Bound(by, value, resource, others)
            names = [bound.name for bound in self.bounds]
            if by not in names:
                self.bounds = [*self.bounds, raised]
            elif self.bounds[names.index(by)].value < value:
                self.bounds = [
                    raised if bound.name == by else bound for bound in self.bounds
                ]
            is_best = value > self.bound.value or (
                not names and value == self.bound.value
            )
            if is_best:
                self.bound = raised
        if is_best:
            self._tell("bound", by)
        return is_best

    def retract(self, names: frozenset[str]) -> None:
        """Take back the bounds of rules that were refuted."""
        with self._lock:
            self.bounds = [bound for bound in self.bounds if bound.name not in names]
            self.bound = max(
                self.bounds, key=lambda bound: bound.value, default=TRIVIAL
            )

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell a function of every better schedule and bound, on the thread that reports it."""
        self._subscribers.append(subscriber)

    def close(self) -> None:
        """Keep what is known: searches that were left behind change nothing any more."""
        with self._lock:
            self._is_open = False
            self._subscribers = []

    def _tell(self, event: str, by: str) -> None:
        for subscriber in self._subscribers:
            subscriber(event, by)
