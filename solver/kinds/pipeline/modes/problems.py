"""The problems of the choices of modes of one pipeline, and quick schedules of them."""

from __future__ import annotations

from ppsolve.models.core.problem import IntArray, Problem
from ppsolve.models.core.schedule import Schedule
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.kinds.pipeline.lowering import lower_pipeline, scale_of
from ppsolve.models.kinds.pipeline.modes import MemoryModes
from ppsolve.solver.kinds.pipeline.choice_lists import ChoiceLists


class ModeProblems:
    """Problems of all choices, with one tick."""

    def __init__(self, modes: MemoryModes, scale: TimeScale | None = None) -> None:
        self.modes = modes
        self.instance = modes.instance
        self.scale = scale or scale_of(self.instance, exact=False)
        self._lists = ChoiceLists()

    def problem(self, choice: IntArray) -> Problem:
        """Return the problem of a choice, int64[S, m], which may be `RELAXED` in places."""
        return lower_pipeline(self.instance, scale=self.scale, choice=choice)

    def schedule(self, choice: IntArray) -> Schedule | None:
        """Return the best of a few list schedules of a choice, None where all get stuck."""
        return self._lists.schedule(self.problem(choice))
