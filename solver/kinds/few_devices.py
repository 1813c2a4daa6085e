"""The bound by parts of few devices within a run: when it is sought, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.cpsat.answer import IncumbentSource
from ppsolve.solver.cpsat.devices.part import obstacle
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder

if TYPE_CHECKING:
    from ppsolve.solver.cpsat.devices.search import FewDevices

FEW_DEVICES = "few-devices"
"""Name of the bound in reports."""

LEAST_OPS = 500
"""Ops from which it is sought; smaller problems are mostly proved as a whole."""

SHARE = 0.6
"""Share of the time of the exact search. Before any heuristic searches it delays what these prove:
two uneven 16 x 64 took 1.6 in place of 0.2 to 0.4 s of CPU time, a V placement of 8 x 24 3.9 in
place of 0.9."""

UNITS = 30.0
"""Deterministic time where nothing is limited, so that the whole is searched at last."""


class DeviceBound:
    """Parts of few devices of one problem; each call goes on where the one before has ended.

    Parameters
    ----------
    implied : ImpliedOrder
        The problem.
    """

    def __init__(self, implied: ImpliedOrder) -> None:
        self._implied = implied
        self._search: FewDevices | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended the last call."""
        return self._search is not None and self._search.is_interrupted

    def seek(
        self,
        lower: int,
        best: Schedule,
        limits: SearchLimits,
        on_bound: Callable[[int, bool], None],
        on_schedule: Callable[[Schedule], bool] | None,
        feed: IncumbentSource,
    ) -> SearchLimits:
        """Look for a better bound for a share of the time.

        Parameters
        ----------
        lower : int
            A proven lower bound in ticks.
        best : Schedule
            A feasible schedule.
        limits : SearchLimits
            Limits of this and of all that follows.
        on_bound : callable
            Told about each better bound, in ticks, and whether the whole has it.
        on_schedule : callable or None
            Told about better schedules; returns whether it takes one. None: the whole is not asked.
        feed : callable
            Asked for the best schedule that was found elsewhere.

        Returns
        -------
        SearchLimits
            Limits of what follows.
        """
        from ppsolve.solver.cpsat.devices.search import FewDevices

        clock = limits.start()
        own = _share(limits)
        if self._search is None:
            self._search = FewDevices(self._implied, lower, best, own)
        self._search.on_bound, self._search.on_schedule = on_bound, on_schedule
        self._search.feed = feed
        self._search.go_on(lower, best, own)
        return limits.less(clock.elapsed, self._search.spent)


def takes_devices(problem: Problem) -> bool:
    """Return true where a problem is bounded by parts of few devices."""
    return problem.num_ops >= LEAST_OPS and obstacle(problem) is None


def _share(limits: SearchLimits) -> SearchLimits:
    taken, clock = limits.scaled(SHARE), limits.clock
    if taken.seconds is None and taken.deterministic is None:
        return replace(taken, deterministic=UNITS)
    return taken if clock is None else replace(taken, clock=clock.share(SHARE))
