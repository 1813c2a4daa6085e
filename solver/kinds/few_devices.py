"""The bound by parts of few devices within a run: when it is sought, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.cpsat.answer import Feed
from ppsolve.solver.cpsat.devices.part import obstacle
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.structure.implied import ImpliedOrder

if TYPE_CHECKING:
    from ppsolve.solver.cpsat.devices.search import FewDevices

FEW_DEVICES = "few-devices"
"""Name of the bound in reports."""

LEAST_OPS = 500
"""Ops from which it is sought; smaller problems are mostly proved as a whole."""

FIRST_SHARE, SHARE = 0.2, 0.6
"""Share of the time before any heuristic searches, and of the time of the exact search."""

FIRST_UNITS = 1.0
"""Deterministic time before any heuristic searches: of ten uneven 16 x 64 nine are bounded at their
optimum with less. Where parts are hard it is lost: a V placement of 8 x 24 that the order search
proves in 0.9 s of CPU time takes 3.9 (0.4 units, all of its share of 15 s)."""

LEAST_SECONDS = 4.0
"""Seconds that must be left for the former: loading OR-tools takes half a second."""

UNITS = 30.0
"""The same in the exact search where nothing is limited, so that the whole is searched at last."""


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
        on_bound: Callable[[int], None],
        feed: Feed | None = None,
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
            Told about each better bound, in ticks.
        feed : callable, optional
            Asked for the best schedule that was found elsewhere; there is none before heuristics
            have searched.

        Returns
        -------
        SearchLimits
            Limits of what follows.
        """
        from ppsolve.solver.cpsat.devices.search import FewDevices

        clock = limits.start()
        own = _share(limits, is_first=feed is None)
        if self._search is None:
            self._search = FewDevices(self._implied, lower, best, own)
        self._search.on_bound, self._search.feed = on_bound, feed
        self._search.go_on(lower, best, own)
        return limits.less(clock.elapsed, self._search.spent)


def takes_devices(problem: Problem) -> bool:
    """Return true where a problem is bounded by parts of few devices."""
    return problem.num_ops >= LEAST_OPS and obstacle(problem) is None


def _share(limits: SearchLimits, *, is_first: bool) -> SearchLimits:
    share, units = (FIRST_SHARE, FIRST_UNITS) if is_first else (SHARE, UNITS)
    taken, clock = limits.scaled(share), limits.clock
    if taken.deterministic is None and (is_first or taken.seconds is None):
        taken = replace(taken, deterministic=units)
    return taken if clock is None else replace(taken, clock=clock.share(share))
