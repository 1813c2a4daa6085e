"""One run of CP-SAT on a thread of its own, so that nobody has to wait for it."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from contextlib import suppress
from threading import Event, Thread

from ortools.sat.python import cp_model

from ppsolve.solver.cpsat.found import Found, Incumbents
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.model import Model

ASK = 0.02
"""Seconds between two requests to stop: one that comes before the search has begun is lost."""

PATIENCE = 10.0
"""Seconds that a process waits at its end for abandoned runs, which were told to end long before.
Of a model of 12,288 ops in presolve they lived on for 0.2 to 1 s."""

_ABANDONED: list[SolverRun] = []


class SolverRun:
    """CP-SAT at work on a model. The thread is a daemon: an abandoned one keeps no process alive.

    Parameters
    ----------
    model : Model
        The model, which nobody may change before the run has ended.
    found : Found
        Told about schedules and bounds.
    limits : SearchLimits
        Limits of the search.
    spent : float
        Wall seconds of the limit that were used before.
    """

    def __init__(self, model: Model, found: Found, limits: SearchLimits, spent: float) -> None:
        strong = limits.dynamic_orders and not model.is_mostly_alike
        light = model.constraints.has_many_literals or strong
        linear = model.is_small_span and not limits.dynamic_orders
        self.solver = configured(limits, spent, light_presolve=light, strong=strong, linear=linear)
        if limits.is_short and strong:
            hasten(self.solver, presolve=model.constraints.has_many_literals)
        self.solver.best_bound_callback = lambda value: found.hear_bound(math.floor(value))
        self.began = time.monotonic()
        self._model, self._callback = model.variables.model, Incumbents(found)
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

        Parameters
        ----------
        grace : float
            Seconds to wait.

        Returns
        -------
        bool
            Whether it has ended.
        """
        deadline = time.monotonic() + grace
        while True:
            self.solver.stop_search()
            if self.wait(ASK):
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
        """CP-SAT's status, None while it is at work.

        Raises
        ------
        Exception
            Whatever CP-SAT or a listener raised on the thread.
        """
        if self._error is not None:
            raise self._error
        return self._status


def await_abandoned(code: int = 1, patience: float = PATIENCE) -> None:
    """Wait for abandoned runs; end the process here and now where one outlives the patience.

    A thread of CP-SAT that comes back to an interpreter which is shutting down aborts the process.

    Parameters
    ----------
    code : int
        Exit code of the process if it ends here.
    patience : float
        Seconds.
    """
    deadline = time.monotonic() + patience
    ended = [run.stop(max(0.0, deadline - time.monotonic())) for run in _ABANDONED]
    if not all(ended):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def configured(
    limits: SearchLimits,
    spent: float,
    *,
    light_presolve: bool = False,
    strong: bool = False,
    linear: bool = False,
) -> cp_model.CpSolver:
    """Return a solver with the limits, minus the seconds that were spent before.

    Parameters
    ----------
    limits : SearchLimits
        Limits of the search.
    spent : float
        Wall seconds, of building the model for one.
    light_presolve : bool
        Simplify the model once, without probing and symmetries. With literals for pairs of ops the
        first worker began after 0.1 to 0.2 instead of 1.4 to 3.9 s on V and interleaved placements
        of 4 x 8, and nine of nine searches of 12 s found and proved as much or more; without any
        presolve proofs took up to 6 times longer. Other models begin within 0.2 s of 500 ops
        anyhow, and were proved in 0.6 s with probing where it took 1.4 to 4.7 s without.
    strong : bool
        Propagate more of what may run on each resource between which ops, for questions about ops
        that are not alike. DynaPipe's 8 x 16 (sigma 1.6) was refuted 2 % above the analytic bound
        in 5.5 s of CPU time, in 2.7 with light presolve, and open after 8 without. Where index
        order says most it does not pay: an uneven 16 x 16 was open at 8.9 s and refuted in 2.1
        without.
    linear : bool
        Put every rule into the linear relaxation of one worker: of several each has its own.

    Returns
    -------
    CpSolver
        A new solver.
    """
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = limits.workers
    # CP-SAT takes seeds of 31 bits.
    parameters.random_seed = limits.seed % 2**31
    parameters.relative_gap_limit = limits.gap
    if limits.seconds is not None:
        parameters.max_time_in_seconds = max(0.0, limits.seconds - spent)
    if limits.deterministic is not None:
        parameters.max_deterministic_time = limits.deterministic
    parameters.catch_sigint_signal = False
    parameters.use_dynamic_precedence_in_disjunctive = limits.dynamic_orders
    if limits.dynamic_orders and limits.workers == 1:
        # Ten questions about pipelines of 192 to 1,152 ops had the same answers without linear
        # relaxations, eight of them as soon or sooner: 15.7 instead of 19.2 s of CPU time in all.
        parameters.linearization_level = 0
    elif linear:
        parameters.num_workers, parameters.linearization_level = 1, 2
    parameters.use_strong_propagation_in_disjunctive = strong
    if light_presolve:
        parameters.cp_model_probing_level = 0
        parameters.symmetry_level = 0
        parameters.max_presolve_iterations = 1
    return solver


def hasten(solver: cp_model.CpSolver, *, presolve: bool) -> None:
    """Let a solver begin sooner, and take each step faster.

    It does not propagate precedences of pairs of ops on one resource by themselves: what follows
    from all of them it propagates anyhow. 60 stretches of V 16 x 48 at 1.375p had the same answers
    or better ones in 14.6 in place of 18.6 s of CPU time, without presolve in 12.3; those of an
    uneven 16 x 24, an uneven 16 x 64 and a V placement of 8 x 24 took 42 in place of 44 s. Whole
    pipelines need them: DynaPipe's 4 x 16 (sigma 1.6) was 2.67 % open in place of 1.29 after 20 s.

    Parameters
    ----------
    solver : CpSolver
        Its parameters are changed.
    presolve : bool
        Simplify the model all the same: proofs of models with literals need that.
    """
    solver.parameters.use_precedences_in_disjunctive_constraint = False
    solver.parameters.cp_model_presolve = presolve
