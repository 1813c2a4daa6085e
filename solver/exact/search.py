"""Build a model and search it: keep the deadline, end where the board's schedule suffices."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event, Lock, Thread
from typing import Any, Protocol

from ortools.sat.python import cp_model

from ppsolve.models.core.result import StopReason
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.board import Board, Incumbent, WrongScheduleError
from ppsolve.solver.clock import Clock
from ppsolve.solver.exact.model import CpsatModel, OutOfTimeError, index_ordered
from ppsolve.solver.exact.parameters import ModelTraits, configured
from ppsolve.solver.exact.params import WAIT
from ppsolve.solver.exact.question import EXACT, ExactAnswer, Question, SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder


class SharedIncumbent:
    """Best schedule and bound of all runs on one model, CP-SAT's and the board's, from any thread.

    Schedules are proposed to the board where those of the model are valid, and its bound is raised
    where bounds of the model are the problem's.
    """

    def __init__(
        self,
        model: SearchedModel,
        board: Board | None = None,
        *,
        proposes: bool = True,
        raises: bool = True,
    ) -> None:
        self.model = model
        self.bound = model.lower
        self.schedule: Schedule | None = None
        self.searched: int | None = None
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
        """Share of the best value above the bound; infinite without a schedule."""
        if self.value is None:
            return math.inf
        return (self.value - self.bound) / self.value if self.value else 0.0

    def note_solution(self, starts: list[int], value: int) -> None:
        """Take a solution of CP-SAT, and propose it where it is the best one.

        `starts` has the values of all variables of the model, the starts first.
        """
        with self._lock:
            if self._is_closed:
                return
            self.searched = value
            if self.value is not None and value >= self.value:
                return
            schedule = self.model.schedule_of(starts)
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
        """Take the board's schedule if it is better and within the largest objective."""
        best = None if self._board is None else self._board.incumbent
        if best is None or best is self._taken or best.by == EXACT:
            return
        self._taken = best
        if best.schedule.value > self.model.upper:
            return
        ordered = self.model.adopt(best.schedule)
        with self._lock:
            if self.value is None or ordered.value < self.value:
                self.schedule = ordered

    def note_response(self, response: Any) -> None:
        """Take the solution, if any, and the bound of a run that has ended."""
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
        """Take nothing more: an abandoned search may go on for a while."""
        with self._lock:
            self._is_closed = True


class Incumbents(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    """Passes every solution of CP-SAT on."""

    def __init__(self, incumbent: SharedIncumbent) -> None:
        super().__init__()
        self._found = incumbent

    def on_solution_callback(self) -> None:
        """Take the solution that CP-SAT has just found."""
        solution = list(self.response_proto.solution)
        self._found.note_solution(solution, round(self.objective_value))


_ABANDONED: list[SolverRun] = []


class SolverRun:
    """CP-SAT at work on a model, on a daemon thread, so that nobody has to wait for it.

    Nobody may change the model before the run has ended. `spent` wall seconds of the limit were
    used before.
    """

    def __init__(
        self,
        model: SearchedModel,
        incumbent: SharedIncumbent,
        limits: SearchLimits,
        spent: float,
    ) -> None:
        self.solver = configured(limits, spent, model.traits)
        self.solver.best_bound_callback = lambda value: incumbent.note_bound(
            math.floor(value)
        )
        self._model, self._callback = model.cp, Incumbents(incumbent)
        self._ended = Event()
        self._status: int | None = None
        self._error: BaseException | None = None
        Thread(target=self._solve, name="cp-sat", daemon=True).start()

    def _solve(self) -> None:
        try:
            self._status = self.solver.solve(self._model, self._callback)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait that long at most; return whether the run has ended."""
        return self._ended.wait(seconds)

    def stop(self, grace: float) -> bool:
        """Ask the search to stop until it does or the grace is over.

        `grace` is in seconds. Return whether it ended.
        """
        deadline = time.monotonic() + grace
        while True:
            self.solver.stop_search()
            if self.wait(WAIT.ask):
                return True
            if time.monotonic() >= deadline:
                return False

    def abandon(self) -> None:
        """Wait for the run no longer, before the process ends at the earliest."""
        if not _ABANDONED:
            atexit.register(await_abandoned)
        _ABANDONED.append(self)

    @property
    def status(self) -> int | None:
        """CP-SAT's status, None while it is at work; raises what CP-SAT or a callback raised."""
        if self._error is not None:
            raise self._error
        return self._status


def await_abandoned(code: int = 1, patience: float = WAIT.exit) -> None:
    """Wait for abandoned runs; end the process where one outlives the patience, with an exit code.

    A thread of CP-SAT that comes back to an interpreter which is shutting down aborts the process.
    """
    deadline = time.monotonic() + patience
    ended = [run.stop(max(0.0, deadline - time.monotonic())) for run in _ABANDONED]
    if not all(ended):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


class SearchedModel(Protocol):
    """What a search asks of a model: `CpsatModel`, or another one whose solutions are schedules."""

    lower: int
    upper: int

    @property
    def cp(self) -> cp_model.CpModel:
        """The model of CP-SAT."""

    @property
    def traits(self) -> ModelTraits:
        """Properties that decide the parameters of a search."""

    @property
    def memory_is_exact(self) -> bool:
        """Whether its memory rules are exactly those of its schedules."""

    def schedule_of(self, solution: list[int]) -> Schedule:
        """Return the schedule of a solution."""

    def adopt(self, schedule: Schedule) -> Schedule:
        """Return a schedule of the board as the model numbers micro-batches."""


class CpsatSearch:
    """A run of CP-SAT on a model until the optimum is proved or a limit is reached.

    The clock began before the model was built.
    """

    def __init__(
        self,
        model: SearchedModel,
        incumbent: SharedIncumbent,
        limits: SearchLimits,
        clock: Clock,
    ) -> None:
        self._model, self._found = model, incumbent
        self._limits, self._clock = limits, clock
        self._early = min(WAIT.head_start, (clock.left + clock.elapsed) / 20)
        self._run = SolverRun(model, incumbent, limits, clock.elapsed)

    def execute(self) -> ExactAnswer:
        """Search until there is no more reason to wait; Ctrl-C returns what is known."""
        interrupted = False
        try:
            self._watch()
        except KeyboardInterrupt:
            interrupted = True
        if not self._run.stop(WAIT.grace):
            self._run.abandon()
        return self._answer(interrupted)

    def _watch(self) -> None:
        while not self._run.wait(WAIT.poll):
            self._found.take_incumbent()
            is_closed = self._is_ahead() and self._found.gap <= self._limits.gap
            if is_closed or self._clock.left <= self._early:
                return

    def _is_ahead(self) -> bool:
        value, searched = self._found.value, self._found.searched
        return value is not None and (searched is None or value < searched)

    def _answer(self, interrupted: bool) -> ExactAnswer:
        status, solver = self._run.status, self._run.solver
        if status == cp_model.MODEL_INVALID:
            raise RuntimeError("CP-SAT refused the model as invalid")
        reason = StopReason.INTERRUPTED if interrupted else StopReason.TIME
        units = 0.0
        if status is not None:
            units = solver.deterministic_time
            reason = stop_reason(solver, status, self._limits, interrupted)
            if status != cp_model.INFEASIBLE:
                self._found.note_response(solver.response_proto)
        self._found.close()
        exact = self._model.memory_is_exact
        if status == cp_model.INFEASIBLE:
            return ExactAnswer(None, None, True, reason, exact, units)
        reason = self._found.reason(self._limits.gap) or reason
        return ExactAnswer(
            self._found.schedule, self._found.bound, False, reason, exact, units
        )


def stop_reason(
    solver: cp_model.CpSolver, status: int, limits: SearchLimits, interrupted: bool
) -> StopReason:
    """Return why CP-SAT ended: a proof, or the limit that was reached."""
    if status == cp_model.INFEASIBLE:
        return StopReason.INFEASIBLE
    if status == cp_model.OPTIMAL:
        # Both are whole numbers as doubles; the gap limit gives this status with a larger gap.
        proved = solver.objective_value - solver.best_objective_bound < 0.5
        return StopReason.PROVED if proved else StopReason.GAP
    if interrupted:
        return StopReason.INTERRUPTED
    units = limits.deterministic
    # Where both limits are set, the one that is nearly used up ended the search. The share only
    # decides the reported reason.
    if units is not None and (
        limits.seconds is None or solver.deterministic_time >= 0.95 * units
    ):
        return StopReason.DETERMINISTIC
    return StopReason.TIME


def solve(
    implied: ImpliedOrder,
    question: Question,
    limits: SearchLimits,
    board: Board | None = None,
) -> ExactAnswer:
    """Minimise the problem's objective with CP-SAT.

    Schedules that are surely valid are proposed to the board, and its bound is raised where the
    question has no `upper`. A better incumbent of the board ends the search at the bound or within
    the gap.

    The answer has no schedule where the time did not suffice to build the model. Check its schedule
    before it is used. A `MemoryInfeasible` says that the capacity of a pool cannot be kept.
    """
    clock, lower = limits.start(), question.lower
    schedule = (
        None if question.known is None else index_ordered(implied, question.known)
    )
    if schedule is not None and question.upper is None and schedule.value == lower:
        return ExactAnswer(schedule, lower, False, StopReason.PROVED, True, 0.0)
    try:
        model = CpsatModel.build(implied, replace(question, known=schedule), clock)
    except OutOfTimeError:
        return ExactAnswer(None, lower, False, StopReason.TIME, True, 0.0)
    if model is None:
        return ExactAnswer(None, None, True, StopReason.INFEASIBLE, True, 0.0)
    is_valid = model.memory_is_exact or question.rounding == "up"
    is_bound = question.upper is None and question.rounding == "down"
    incumbent = SharedIncumbent(model, board, proposes=is_valid, raises=is_bound)
    return CpsatSearch(model, incumbent, limits, clock).execute()


@dataclass
class QuestionSearch:
    """A search that asks CP-SAT short questions of one worker each, within the limits of all.

    `board`: its board, with a schedule.
    `limits`: limits of the whole search.
    `spent`: deterministic time of all questions so far.
    `is_interrupted`: whether Ctrl-C ended a question.
    """

    implied: ImpliedOrder
    board: Board
    limits: SearchLimits
    spent: float = field(default=0.0, init=False)
    is_interrupted: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Let the clock run."""
        self._clock: Clock = self.limits.start()

    @property
    def is_used_up(self) -> bool:
        """Whether a limit is reached."""
        units = self.limits.deterministic
        is_spent = units is not None and self.spent >= units
        return is_spent or self.is_interrupted or self._clock.is_over

    def answer(
        self, implied: ImpliedOrder, question: Question, units: float, **fields: Any
    ) -> ExactAnswer:
        """Return the answer to a question about a part, or the whole, in deterministic time.

        `fields` are others of `SearchLimits`.
        """
        limit = self.limits.deterministic
        limits = replace(
            self.limits,
            clock=self._clock,
            deterministic=units
            if limit is None
            else max(0.0, min(units, limit - self.spent)),
            workers=1,
            gap=0.0,
            dynamic_orders=True,
            **fields,
        )
        answer = solve(
            implied, question, limits, self.board if implied is self.implied else None
        )
        self.spent += answer.deterministic_time
        self.is_interrupted = answer.stop_reason is StopReason.INTERRUPTED
        return answer
