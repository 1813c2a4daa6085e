"""What another solver makes of a problem, held against the rules like our own answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ppsolve.models.core.problem import Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.solver.checker import check_schedule

INVALID = "INVALID"
"""Status of a schedule that breaks a rule: its bound may hold, its value does not count."""


@dataclass(frozen=True)
class PeerAnswer:
    """An answer in ticks, and wall seconds with the building of the model.

    Parameters
    ----------
    status : str
        ``OPTIMAL``, ``FEASIBLE``, ``INFEASIBLE``, ``UNKNOWN``, or `INVALID`.
    value : int or None
        Value of a valid schedule.
    bound : int or None
        Lower bound on all schedules.
    seconds : float
        Wall seconds.
    """

    status: str
    value: int | None
    bound: int | None
    seconds: float

    @classmethod
    def of(
        cls,
        problem: Problem,
        starts: list[int] | None,
        bound: int | None,
        *,
        took: float,
    ) -> PeerAnswer:
        """Return the answer for starts that a solver found.

        Parameters
        ----------
        problem : Problem
            n ops.
        starts : list of int or None
            Start of every op in ticks; None: no schedule was found.
        bound : int or None
            What the solver proved.
        took : float
            Wall seconds.

        Returns
        -------
        PeerAnswer
            ``OPTIMAL`` only where the schedule is valid and its value is the bound.
        """
        if starts is None:
            return cls("UNKNOWN", None, bound, took)
        schedule = Schedule(problem, np.array(starts, dtype=np.int64))
        if check_schedule(problem, schedule):
            return cls(INVALID, None, bound, took)
        value = schedule.normalised().value
        return cls("OPTIMAL" if value == bound else "FEASIBLE", value, bound, took)

    def record(self, name: str, problem: Problem) -> dict[str, Any]:
        """Return the answer as JSON data.

        Parameters
        ----------
        name : str
            Name of the solver.
        problem : Problem
            What it solved.

        Returns
        -------
        dict
            ``name``, ``status``, ``value`` and ``bound`` in the instance's unit, ``seconds``.
        """

        def shown(ticks: int | None) -> float | None:
            return None if ticks is None else float(problem.scale.time(ticks))

        return {
            "name": name,
            "status": self.status,
            "value": shown(self.value),
            "bound": shown(self.bound),
            "seconds": round(self.seconds, 3),
        }
