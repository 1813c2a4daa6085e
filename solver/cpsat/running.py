"""One run of CP-SAT on a thread of its own, so that nobody has to wait for it."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from contextlib import suppress
from threading import Event, Thread

from ppsolve.solver.cpsat.found import Incumbents, SharedIncumbent
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.cpsat.model import CpsatModel
from ppsolve.solver.cpsat.parameters import configured

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
    model : CpsatModel
        The model, which nobody may change before the run has ended.
    found : SharedIncumbent
        Told about schedules and bounds.
    limits : SearchLimits
        Limits of the search.
    spent : float
        Wall seconds of the limit that were used before.
    """

    def __init__(
        self, model: CpsatModel, found: SharedIncumbent, limits: SearchLimits, spent: float
    ) -> None:
        self.solver = configured(limits, spent, model.traits)
        self.solver.best_bound_callback = lambda value: found.note_bound(math.floor(value))
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
