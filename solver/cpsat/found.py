"""What a running search has found so far, from whichever thread."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from threading import Lock
from typing import Any

from ortools.sat.python import cp_model

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board, Incumbent, WrongScheduleError
from ppsolve.solver.cpsat.answer import EXACT
from ppsolve.solver.cpsat.model import CpsatModel, index_ordered


class SharedIncumbent:
    """Best schedule and bound of all runs on one model, CP-SAT's and those of a board.

    Parameters
    ----------
    model : CpsatModel
        The model that is searched.
    board : Board, optional
        A board of the model's problem.
    proposes : bool
        Schedules of the model are valid, so that they are proposed to the board.
    raises : bool
        Bounds of the model are those of the problem, so that the board's bound is raised.
    """

    def __init__(
        self,
        model: CpsatModel,
        board: Board | None = None,
        *,
        proposes: bool = True,
        raises: bool = True,
    ) -> None:
        self.model = model
        self.bound = model.lower
        self.schedule: Schedule | None = None
        self.searched: int | None = None
        self.improved = time.monotonic()
        self._board = board
        self._proposes, self._raises = proposes, raises
        # What is known before is no news: the model begins from it, or looks below it.
        self._taken: Incumbent | None = None if board is None else board.incumbent
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

    def note_solution(self, starts: list[int], value: int) -> None:
        """Take a solution of CP-SAT, and propose it where it is the best one.

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
        if self._board is not None and self._proposes:
            # The board notes the error: a callback that raises one would abort the process.
            with suppress(WrongScheduleError):
                self._board.propose(schedule, EXACT)

    def note_bound(self, bound: int) -> None:
        """Take a bound of CP-SAT, in ticks, and raise that of the board."""
        with self._lock:
            if self._is_closed or bound <= self.bound:
                return
            self.bound = bound
        if self._board is not None and self._raises:
            self._board.raise_bound(bound, EXACT)

    def take_incumbent(self) -> None:
        """Take the schedule of another search if it is better.

        One above the largest objective that is looked for says nothing here.
        """
        best = None if self._board is None else self._board.incumbent
        if best is None or best is self._taken or best.by == EXACT:
            return
        self._taken = best
        if best.schedule.value > self.model.upper:
            return
        ordered = index_ordered(self.model.implied, best.schedule)
        with self._lock:
            if self.value is None or ordered.value < self.value:
                self.schedule = ordered

    def note_response(self, response: Any) -> None:
        """Take the last word of a run that has ended: its solution, if any, and its bound."""
        if len(response.solution):
            self.note_solution(list(response.solution), round(response.objective_value))
        # A run that presolve closes tells its bound nowhere else.
        self.note_bound(int(response.inner_objective_lower_bound))

    def reason(self, gap: float) -> StopReason | None:
        """Return why nothing more is needed within a gap, None where more is."""
        if self.value is not None and self.value <= self.bound:
            return StopReason.PROVED
        return StopReason.GAP if self.gap <= gap else None

    def close(self) -> None:
        """Take nothing more: a search that was given up on may go on for a while."""
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
        self._found.note_solution(solution, round(self.objective_value))
