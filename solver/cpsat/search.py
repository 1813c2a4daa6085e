"""Search a built model: keep the deadline, and start again from better schedules of the board."""

from __future__ import annotations

import time

from ortools.sat.python import cp_model

from ppsolve.models.core.result import StopReason
from ppsolve.solver.clock import Clock
from ppsolve.solver.cpsat.answer import ExactAnswer
from ppsolve.solver.cpsat.found import SharedIncumbent
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.model import CpsatModel
from ppsolve.solver.cpsat.running import SolverRun

POLL = 0.05
"""Seconds between two looks at the clock and the board."""

GRACE = 0.2
"""Seconds that CP-SAT has to end after it was told to; then its run is abandoned."""

HEAD_START = 0.1
"""Seconds before the deadline at which CP-SAT is told to end, a twentieth of shorter limits, so
that an abandoned run answers 0.1 s late at most."""

FIRST_CALM = 2.0
"""Seconds without a better solution before the first start with a schedule of the board; doubled by
every start, since each loses the clauses learned so far."""


CONCLUSIVE = frozenset({cp_model.OPTIMAL, cp_model.INFEASIBLE, cp_model.MODEL_INVALID})
"""Statuses after which no start with a better schedule can change anything."""


class CpsatSearch:
    """Runs of CP-SAT on one model until the optimum is proved or a limit is reached.

    Parameters
    ----------
    model : CpsatModel
        The built model.
    found : SharedIncumbent
        What is known so far.
    limits : SearchLimits
        Limits of all runs together.
    clock : Clock
        Began when `limits` did, before the model was built.
    """

    def __init__(
        self,
        model: CpsatModel,
        found: SharedIncumbent,
        limits: SearchLimits,
        clock: Clock,
    ) -> None:
        self._model, self._found = model, found
        self._limits, self._clock = limits, clock
        self._calm = FIRST_CALM
        self._left = limits
        self._units = 0.0
        self._early = min(HEAD_START, (clock.left + clock.elapsed) / 20)
        self._run = self._start()

    def execute(self) -> ExactAnswer:
        """Search, and answer from what is known once there is no more reason to wait.

        Python raises interrupts in the main thread, which is this one where there are any.
        """
        interrupted = False
        try:
            while self._watch():
                self._start_again()
        except KeyboardInterrupt:
            interrupted = True
        if not self._run.stop(GRACE):
            self._run.abandon()
        return self._answer(interrupted)

    def _start(self) -> SolverRun:
        self._found.searched = None
        return SolverRun(self._model, self._found, self._left, self._clock.elapsed)

    def _start_again(self) -> None:
        """Start from the board's schedule; the run before has ended, so the model may change."""
        self._spend()
        self._calm *= 2
        best = self._found.schedule
        if best is not None:
            self._model.tighten(self._found.bound, best)
        self._run = self._start()

    def _spend(self) -> None:
        used = self._run.solver.deterministic_time
        self._units += used
        self._left = self._left.less(0.0, used)

    def _watch(self) -> bool:
        """Wait while there is a reason to; return whether to start again."""
        again = False
        while not self._run.wait(POLL):
            self._found.take_incumbent()
            if self._clock.left <= self._early or self._is_closed():
                return False
            again = again or self._has_better_start()
            if again:
                self._run.stop(0.0)
        return again and self._run.status not in CONCLUSIVE and self._clock.left > self._early

    def _is_closed(self) -> bool:
        """Whether a schedule of the board is good enough; CP-SAT ends by itself for its own."""
        return self._is_ahead() and self._found.gap <= self._limits.gap

    def _is_ahead(self) -> bool:
        value, searched = self._found.value, self._found.searched
        return value is not None and (searched is None or value < searched)

    def _has_better_start(self) -> bool:
        """Whether a schedule of the board leads, and CP-SAT has found nothing for a while."""
        last = max(self._run.began, self._found.improved)
        return self._is_ahead() and time.monotonic() - last >= self._calm

    def _answer(self, interrupted: bool) -> ExactAnswer:
        status, solver = self._run.status, self._run.solver
        if status == cp_model.MODEL_INVALID:
            raise RuntimeError("CP-SAT refused the model as invalid")
        reason = StopReason.INTERRUPTED if interrupted else StopReason.TIME
        if status is not None:
            reason = stop_reason(solver, status, self._left, interrupted)
            if status != cp_model.INFEASIBLE:
                self._found.note_response(solver.response_proto)
            self._spend()
        self._found.close()
        exact = self._model.constraints.memory_is_exact
        if status == cp_model.INFEASIBLE:
            return ExactAnswer(None, None, True, reason, exact, self._units)
        reason = self._found.reason(self._limits.gap) or reason
        return ExactAnswer(
            self._found.schedule, self._found.bound, False, reason, exact, self._units
        )


def stop_reason(
    solver: cp_model.CpSolver, status: int, limits: SearchLimits, interrupted: bool
) -> StopReason:
    """Return why CP-SAT ended.

    Parameters
    ----------
    solver : CpSolver
        The solver after its run.
    status : int
        Its status.
    limits : SearchLimits
        The limits of the run.
    interrupted : bool
        Somebody pressed Ctrl-C.

    Returns
    -------
    StopReason
        A proof, or the limit that was reached.
    """
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
    if units is not None and (limits.seconds is None or solver.deterministic_time >= 0.95 * units):
        return StopReason.DETERMINISTIC
    return StopReason.TIME
