"""An instance for one runtime: what the runtime runs, and what a result says of it."""

from __future__ import annotations

from typing import Any

from ppsolve.models.core.result import Result
from ppsolve.solver.run.task import Task


class Narrowing:
    """An instance whose schedules are only those that one runtime runs.

    Where a runtime runs few orders its task tries them all. Then the best of all schedules is
    searched too, and the result compares both.
    """

    is_finite: bool
    """Whether the runtime runs few orders."""

    first_share: float = 0.5
    """Share of the time after which no further order is timed; most take moments."""

    def task(self) -> Task:
        """Return a new task of what the runtime runs."""
        raise NotImplementedError

    def any_order(self) -> Task:
        """Return a new task of all schedules, where `is_finite`."""
        raise NotImplementedError

    def fields(
        self, task: Task | None, result: Result, best: Result | None
    ) -> dict[str, Any]:
        """Return the fields of the result that the runtime decides.

        `task` is that of few orders and `best` the result of all schedules; None where there are
        none.
        """
        raise NotImplementedError
