"""What a running search has told so far, from whichever thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from ortools.sat.python import cp_model

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.cpsat.model import CpsatModel, index_ordered

Listener = Callable[[int], None]


class SharedIncumbent:
    """Best schedule and bound of all runs on one model, CP-SAT's and what was fed to it.

    Parameters
    ----------
    model : CpsatModel
        The model that is searched.
    on_incumbent, on_bound : callable, optional
        Called with each better value and bound of CP-SAT, in ticks, from solver threads.
    on_schedule : callable, optional
        Called with each better schedule of CP-SAT, from solver threads.
    """

    def __init__(
        self,
        model: CpsatModel,
        *,
        on_incumbent: Listener | None = None,
        on_bound: Listener | None = None,
        on_schedule: Callable[[Schedule], None] | None = None,
    ) -> None:
        self.model = model
        self.bound = model.lower
        self.schedule: Schedule | None = None
        self.searched: int | None = None
        self.improved = time.monotonic()
        self._on_incumbent, self._on_bound = on_incumbent, on_bound
        self._on_schedule = on_schedule
        self._lock = Lock()
        self._is_closed = False

    @property
    def value(self) -> int | None:
        """Value of the best schedule in ticks."""
        return None if self.schedule is None else self.schedule.value

    @property
    def gap(self) -> float:
        """Share of the best value that lies above the bound, infinite without a schedule."""
        if self.value is None:
            return math.inf
        return (self.value - self.bound) / self.value if self.value else 0.0

    def hear_schedule(self, starts: list[int], value: int) -> None:
        """Take a solution of CP-SAT, and pass it on where it is the best one.

        Parameters
        ----------
        starts : list of int
            Values of the model's variables, the starts first, in ticks.
        value : int
            Its objective, in ticks.
        """
        with self._lock:
            if self._is_closed:
                return
            self.improved = time.monotonic()
            self.searched = value
            if self.value is not None and value >= self.value:
                return
            schedule = Schedule(self.model.implied.problem, self.model.variables.starts_in(starts))
            self.schedule = schedule
        if self._on_incumbent is not None:
            self._on_incumbent(value)
        if self._on_schedule is not None:
            self._on_schedule(schedule)

    def hear_bound(self, bound: int) -> None:
        """Take a bound of CP-SAT, in ticks, and pass it on where it is better."""
        with self._lock:
            if self._is_closed or bound <= self.bound:
                return
            self.bound = bound
        if self._on_bound is not None:
            self._on_bound(bound)

    def feed(self, schedule: Schedule) -> bool:
        """Take a schedule that was found elsewhere; return whether it is the best one.

        One above the largest objective that is looked for says nothing here.
        """
        if schedule.value > self.model.upper:
            return False
        ordered = index_ordered(self.model.implied, schedule.normalised())
        with self._lock:
            if self.value is not None and ordered.value >= self.value:
                return False
            self.schedule = ordered
            return True

    def hear_response(self, response: Any) -> None:
        """Take the last word of a run that has ended: its solution, if any, and its bound."""
        if len(response.solution):
            self.hear_schedule(list(response.solution), round(response.objective_value))
        # A run that presolve closes tells its bound nowhere else.
        self.hear_bound(int(response.inner_objective_lower_bound))

    def reason(self, gap: float) -> StopReason | None:
        """Return why nothing more is needed within a gap, None where more is."""
        if self.value is not None and self.value <= self.bound:
            return StopReason.PROVED
        return StopReason.GAP if self.gap <= gap else None

    def close(self) -> None:
        """Listen no more: a search that was given up on may go on for a while."""
        with self._lock:
            self._is_closed = True


class Incumbents(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Passes every solution of CP-SAT on."""

    def __init__(self, found: SharedIncumbent) -> None:
        super().__init__()
        self._found = found

    def on_solution_callback(self) -> None:
        """Take the solution that CP-SAT has just found."""
        solution = list(self.response_proto.solution)
        self._found.hear_schedule(solution, round(self.objective_value))
