"""Making an instance ready to be solved, within the time of its call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ppsolve.models.core.result import HeuristicEntry
from ppsolve.models.core.timescale import TimeScale
from ppsolve.models.instances import Instance
from ppsolve.solver.attended import InterruptibleCall
from ppsolve.solver.clock import Clock
from ppsolve.solver.heuristics.heuristic import Effort, Heuristic, HeuristicOutcome
from ppsolve.solver.kinds.kind import Kind
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.task import Strategy, Task


def task_in_time(make: Callable[[], Task], clock: Clock) -> Task | None:
    """Return the task that a function makes, or None if its clock is over before.

    Parameters
    ----------
    make : callable
        Makes the task; broken off `SLACK` after the end of the clock.
    clock : Clock
        Clock of the call; without a deadline the function runs to its end.

    Returns
    -------
    Task or None
        The task.

    Raises
    ------
    InputError
        The instance is refused.
    """
    made: list[Task] = []

    def work() -> None:
        attended.within(clock, lambda: made.append(make()))

    attended = InterruptibleCall(work, clock, lambda: None, is_attended=clock.is_limited)
    attended.run()
    if attended.is_interrupted:
        raise KeyboardInterrupt
    return made[0] if made else None


class UnreadyTask(Task):
    """An instance that the time did not suffice to lower: nothing is known of it.

    Parameters
    ----------
    kind : Kind
        Its kind.
    instance : Instance
        The instance.
    """

    value = best_by = None

    def __init__(self, kind: Kind[Any], instance: Instance) -> None:
        scale = TimeScale.fit((), instance.time_unit)
        super().__init__(kind, instance, scale, kind.objective_of(instance))

    def find_bounds(self, clock: Clock | None = None) -> None:
        """Find no bound."""

    def run_heuristic(self, heuristic: Heuristic, effort: Effort | None = None) -> HeuristicOutcome:
        """Refuse: the clock of such a run is over before its first heuristic."""
        raise AssertionError("no heuristic runs before there is a problem")

    def strategies(self, options: Options) -> tuple[Strategy, ...]:
        """Return no search."""
        return ()

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
