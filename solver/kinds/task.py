"""One instance that is being solved: what is known of it, and how more is found out."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self

from ppsolve.models.core.problem import Objective
from ppsolve.models.core.result import Bottleneck, Figure, HeuristicEntry, StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.documents.errors import InputError
from ppsolve.models.instances import Instance
from ppsolve.solver.attended import unbroken
from ppsolve.solver.bounds import Bound
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, HeuristicOutcome
from ppsolve.solver.kinds.options import Options

EXACT = "cp-sat"
"""Name of the exact solver in reports."""


class WrongScheduleError(Exception):
    """A solver returned a schedule that the checker refuses, or a bound above a schedule."""


def load_exact_solver() -> None:
    """Import OR-tools, which takes about half a second."""
    with unbroken():
        import ppsolve.solver.cpsat.exact  # noqa: F401


class Control(Protocol):
    """What a run lends to a task: its options, its clock and limits, and its listener."""

    options: Options

    @property
    def clock(self) -> Clock:
        """Clock by whose end a search has to return its best."""

    def limits(self) -> SearchLimits:
        """Return the limits of a search that begins now."""

    def tell(
        self, event: str, source: str, value: int | None = None, bound: int | None = None
    ) -> None:
        """Tell the listener of an event; value and bound are the task's unless they are given.

        Parameters
        ----------
        event, source : str
            As in `Progress`.
        value, bound : int, optional
            Ticks, or the unit of the task's values.
        """


Strategy = Callable[[Control], StopReason]
"""A way to search: improves what the task knows until a limit, and says why it stopped."""


class Task(ABC):
    """An instance that is being solved. Values and bounds are whole numbers of one unit.

    Parameters
    ----------
    kind : Kind
        Its kind.
    instance : Instance
        The instance.
    scale : TimeScale
        Ticks and time unit of its schedules.
    objective : Objective
        What is minimised.
    """

    orders_are_all = False
    """Whether the orders of resources are all there is to a schedule."""

    schedules_of = "this instance"
    """What is scheduled in words, for refusals of what needs orders alone."""

    def __init__(
        self, kind: Any, instance: Instance, scale: TimeScale, objective: Objective
    ) -> None:
        self.kind = kind
        self.instance: Any = instance
        self.scale, self.objective = scale, objective
        self.bound = Bound("trivial", 0)
        self.bounds: list[Bound] = []
        self.outcomes: list[HeuristicOutcome] = []

    @property
    @abstractmethod
    def value(self) -> int | None:
        """Value of the best schedule, None while there is none."""

    @property
    @abstractmethod
    def best_by(self) -> str | None:
        """What found the best schedule."""

    @property
    def best_schedule(self) -> Schedule | None:
        """The best schedule, where there is one that searches can improve."""
        return None

    def begin_from(self, given: Any) -> None:
        """Begin with a schedule that is known.

        Parameters
        ----------
        given : Schedule, pydantic model or dict
            A schedule of the instance, or a document that holds one.

        Raises
        ------
        InputError
            It is no valid schedule, or the instance has more to it than the starts of its ops.
        """
        raise InputError(
            f"schedules of {self.schedules_of} are more than the starts of their ops; "
            "expected a pipeline or a graph",
            source=self.instance.name,
            field="start",
        )

    def refuse_robust(self) -> None:
        """Refuse to search a schedule that jitter delays less, where that makes no sense.

        Raises
        ------
        InputError
            Always, for tasks that are not one problem of free orders.
        """
        raise InputError(
            f"schedules of {self.schedules_of} are more than the orders of their resources; "
            "expected a pipeline or a graph",
            source=self.instance.name,
            field="robust",
        )

    def steady(self, variation: float, clock: Clock, seed: int) -> None:
        """Replace the best schedule by one of equal makespan that jitter delays less.

        Parameters
        ----------
        variation : float
            Coefficient of variation of all durations.
        clock : Clock
            When to stop.
        seed : int
            Seed of random durations.
        """
        self.refuse_robust()

    def hear(self, schedule: Schedule, by: str) -> bool:
        """Keep a schedule that a search tells of while it goes on.

        Parameters
        ----------
        schedule : Schedule
            A schedule of what is solved.
        by : str
            Name of the search.

        Returns
        -------
        bool
            Whether it is better than what was known.
        """
        return False

    @property
    def tick_error(self) -> int:
        """Ticks by which the optimum may exceed that of the given times, see `Problem`."""
        return 0

    @property
    def infeasible(self) -> str | None:
        """Why there can be no schedule, as far as that is proved."""
        return None

    @property
    def size(self) -> int:
        """Number of ops, by which searches are left out that would take too long."""
        return 0

    @property
    def is_too_large(self) -> bool:
        """Whether it has too many ops for any of its strategies."""
        return False

    @property
    def has_parts(self) -> bool:
        """Whether parts of its best schedule are solved anew after all heuristics."""
        return False

    def searches_beside(self, options: Options) -> bool:
        """Whether a search goes on beside the exact one, so that it ends its own turn early."""
        return False

    @property
    def glances_first(self) -> bool:
        """Whether its glance comes as soon as it has a schedule, not after all but searches."""
        return False

    @property
    def is_closed(self) -> bool:
        """Whether the best schedule is proved to be optimal."""
        return self.value is not None and self.value == self.bound.value

    def bottleneck(self) -> Bottleneck | None:
        """Return the bottleneck of the best bound, None where that is not known."""
        return None

    def shown(self, value: int) -> Figure:
        """Return a value or bound in the unit of results."""
        return self.scale.time(value)

    def snapshot(self) -> Self:
        """Return a copy of all that is known now, to which a search that goes on adds nothing."""
        taken = copy.copy(self)
        for name, value in vars(taken).copy().items():
            if isinstance(value, list):
                setattr(taken, name, value.copy())
        return taken

    @abstractmethod
    def find_bounds(self, clock: Clock | None = None) -> None:
        """Find every analytic lower bound, or those that the time allows.

        Parameters
        ----------
        clock : Clock, optional
            Asked whether more bounds may be sought; without one all are.

        Raises
        ------
        MemoryInfeasible
            No schedule keeps the capacity of a pool.
        """

    @abstractmethod
    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> HeuristicOutcome:
        """Run one heuristic, check its schedule and keep it if it is the best.

        Parameters
        ----------
        heuristic : Heuristic
            The heuristic.
        effort : Effort, optional
            How long it may go on if it searches; its usual effort by default.

        Returns
        -------
        HeuristicOutcome
            What became of it.
        """

    def glance(self, control: Control) -> StopReason | None:
        """Search exactly for a moment, before heuristics that search; None where that is vain."""
        return None

    @abstractmethod
    def strategies(self, options: Options) -> Iterable[Strategy]:
        """Yield the searches to run in turn until the optimum is proved or a limit is met."""

    def verify(self, control: Control, limits: SearchLimits) -> bool | None:
        """Prove once more what only CP-SAT has proved: its bound, or that there is no schedule.

        Parameters
        ----------
        control : Control
            The run, told about a better schedule.
        limits : SearchLimits
            Limits of the second proof.

        Returns
        -------
        bool or None
            False where a schedule contradicts the first proof: it is kept, the proof is not. None
            where there is nothing to prove, or the limits ended it.
        """
        return None

    def finish(self, control: Control) -> StopReason | None:
        """Minimise what else is asked for at the best value; return why that stopped early."""
        return None

    @abstractmethod
    def entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of a heuristic, without its distance over the best value."""

    @abstractmethod
    def value_of(self, outcome: HeuristicOutcome) -> int | None:
        """Return the value that a heuristic reached, None where its schedule breaks a rule."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Return the fields of the result that the best schedule has; none without a schedule."""
