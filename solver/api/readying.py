"""Making an instance ready to be solved, within the time of its call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.instances import Instance
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, HeuristicOutcome
from ppsolve.solver.interruptible import call_within
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.run.step import Step, Steps
from ppsolve.solver.run.steps import GREEDY
from ppsolve.solver.run.task import Task


def task_in_time(make: Callable[[], Task], clock: Clock) -> Task | None:
    """Return the task that a function makes, or None if its clock is over before.

    Parameters
    ----------
    make : callable
        Makes the task; left behind `SLACK` after the end of the clock.
    clock : Clock
        Clock of the call; without a deadline the function runs to its end.

    Returns
    -------
    Task or None
    """
    made: list[Task] = []
    is_made = call_within(lambda: made.append(make()), clock)
    return made[0] if is_made else None


class UnreadyTask(Task):
    """An instance that the time did not suffice to lower: nothing is known of it."""

    steps: ClassVar[tuple[Step | Steps, ...]] = (GREEDY,)

    def __init__(self, kind: Kind[Any], instance: Instance) -> None:
        scale = TimeScale.fit((), instance.time_unit)
        super().__init__(kind, instance, scale, kind.objective_of(instance))

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Find no bound."""

    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> None:
        """Refuse: the clock of such a run is over before its first heuristic."""
        raise AssertionError("no heuristic runs before there is a problem")

    def entry(self, outcome: HeuristicOutcome) -> HeuristicEntry:
        """Return the entry of a heuristic that was not run."""
        _, entry = self.kind.documents(self.kind.value_unit(self.instance))
        found: HeuristicEntry = entry(
            name=outcome.name, status=outcome.status, reason=outcome.reason
        )
        return found

    def value_of(self, outcome: HeuristicOutcome) -> None:
        """Return None: no heuristic was run."""

    def figures(self) -> dict[str, Any]:
        """Return no fields."""
        return {}
