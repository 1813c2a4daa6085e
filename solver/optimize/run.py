"""One run of `optimize`: bounds, heuristics, searches, whatever the kind of the instance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ppsolve.models.core.result import HeuristicStatus, Result, Status, StopReason
from ppsolve.solver.cpsat.limits import SearchLimits
from ppsolve.solver.heuristics.heuristic import Heuristic
from ppsolve.solver.kinds.entries import bound_entries, relative_gap, versions
from ppsolve.solver.kinds.options import Options
from ppsolve.solver.kinds.task import EXACT, Task, load_exact_solver
from ppsolve.solver.optimize.progress import Progress, ProgressListener
from ppsolve.solver.structure.memory_requirements import MemoryInfeasible

SEARCHED_OPS_PER_SECOND = 2_000
"""Search heuristics are left out where an instance has more ops for each second of the limit.

`list-sweep` took 1.4, 3.5, 8.1 and 8.6 s of processor time for capped pipelines of 768, 3,072,
6,144 and 12,288 ops, on a machine that was busy otherwise: so where it is run it may take up to
four times the limit, and with a larger number still longer.
"""


@dataclass
class _Ending:
    """Why a run stopped, and what there is to say about it."""

    reason: StopReason | None = None
    words: str | None = None


class Run:
    """State of one run; `execute` returns its result.

    Parameters
    ----------
    task : Task
        The instance that is solved.
    heuristics : sequence of Heuristic
        What is run, in the order of the report.
    options : Options
        Limits and seed.
    listener : callable, optional
        Told about progress.
    """

    def __init__(
        self,
        task: Task,
        heuristics: Sequence[Heuristic],
        options: Options,
        listener: ProgressListener | None = None,
    ) -> None:
        self.task = task
        self.heuristics = heuristics
        self.options = options
        self._listener = listener
        self._began = time.monotonic()
        self._end = _Ending()

    def execute(self) -> Result:
        """Run every phase until the optimum is proved or a limit is reached."""
        try:
            self.task.find_bounds()
            self.tell("bound", self.task.bound.name)
            self._run_heuristics()
            if not self._is_over():
                self._search()
            if not self._is_impossible() and self._end.reason is not StopReason.INTERRUPTED:
                self._finish()
        except MemoryInfeasible as error:
            self._end = _Ending(StopReason.INFEASIBLE, str(error))
        except KeyboardInterrupt:
            self._end = _Ending(StopReason.INTERRUPTED)
        return self._result()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def limits(self) -> SearchLimits:
        """Return the limits of a search that begins now."""
        return self.options.limits(self.elapsed)

    def tell(
        self, event: str, source: str, value: int | None = None, bound: int | None = None
    ) -> None:
        """Tell the listener of an event.

        Parameters
        ----------
        event, source : str
            As in `Progress`.
        value, bound : int, optional
            Best value and bound so far; the task's by default.
        """
        if self._listener is None:
            return
        task = self.task
        value = task.value if value is None else value
        bound = task.bound.value if bound is None else bound
        self._listener(
            Progress(
                event=event,
                seconds=self.elapsed,
                source=source,
                incumbent=None if value is None else task.shown(value),
                bound=task.shown(bound),
                gap=None if value is None else relative_gap(value, min(bound, value), value),
            )
        )

    def _run_heuristics(self) -> None:
        for heuristic in self.heuristics:
            if heuristic.is_search and (self._is_good_enough() or self._is_too_slow()):
                continue
            before = self.task.value
            outcome = self.task.run_heuristic(heuristic)
            if outcome.status is HeuristicStatus.NOT_APPLICABLE:
                continue
            if self.task.value != before:
                self.tell("incumbent", heuristic.name)
            self.tell("heuristic", heuristic.name)

    def _is_too_slow(self) -> bool:
        """Whether a search heuristic would take most of the time limit; judged by size alone."""
        limit = self.options.time_limit
        return limit is not None and 0 < limit * SEARCHED_OPS_PER_SECOND < self.task.size

    def _is_good_enough(self) -> bool:
        """Whether the best schedule is proved or within the gap that is asked for."""
        task = self.task
        if task.value is None:
            return False
        return task.is_closed or (
            relative_gap(task.value, task.bound.value, task.value) <= self.options.gap
        )

    def _is_impossible(self) -> bool:
        """Whether it is proved that there is no schedule; notes why."""
        if self.task.infeasible is not None:
            self._end = _Ending(StopReason.INFEASIBLE, self.task.infeasible)
        return self._end.reason is StopReason.INFEASIBLE

    def _is_over(self) -> bool:
        """Whether there is nothing left to search for; notes why."""
        if self._is_impossible():
            return True
        if self._is_good_enough():
            closed = self.task.is_closed
            self._end.reason = StopReason.PROVED if closed else StopReason.GAP
            return True
        return False

    def _search(self) -> None:
        if self.task.is_too_large:
            self._end.reason = StopReason.TOO_LARGE
            return
        if self.limits().seconds == 0:
            self._end.reason = StopReason.TIME
            return
        # First: an interrupt while a compiled module is loading may be lost.
        load_exact_solver()
        self.tell("phase", EXACT)
        for strategy in self.task.strategies(self.options):
            self._end.reason = strategy(self)
            if self._end.reason is StopReason.INFEASIBLE:
                self._end.words = "no schedule satisfies every rule (proved by cp-sat)"
            if self._end.reason is StopReason.INTERRUPTED or self._is_over():
                return

    def _finish(self) -> None:
        if self.limits().seconds != 0:
            self._end.reason = self.task.finish(self) or self._end.reason

    def _status(self) -> Status:
        if self._end.reason is StopReason.INFEASIBLE:
            return Status.INFEASIBLE
        if self.task.value is None:
            return Status.UNKNOWN
        return Status.OPTIMAL if self.task.is_closed else Status.FEASIBLE

    def _result(self) -> Result:
        task, options, status = self.task, self.options, self._status()
        model, _ = task.kind.documents(task.kind.value_unit(task.instance))
        fields = {
            "instance": task.instance.name,
            "kind": task.kind.name,
            "status": status,
            "objective": task.objective,
            "time_unit": task.scale.unit,
            "value_unit": task.kind.value_unit(task.instance),
            "stop_reason": self._end.reason or StopReason.PROVED,
            "reason": self._end.words,
            "wall_seconds": round(self.elapsed, 3),
            "seed": options.seed,
            "workers": options.used_workers,
            "deterministic": options.deterministic,
            "rounding_error": task.scale.worst_relative_error,
            "versions": versions(),
            "bounds": bound_entries(task.bounds, task.shown),
            "heuristics": [task.entry(outcome) for outcome in task.outcomes],
            **({} if status is Status.INFEASIBLE else self._found()),
        }
        result: Result = model.model_validate(fields)
        return result

    def _found(self) -> dict[str, Any]:
        """Return the best schedule's figures, its bound and its gap."""
        task, value = self.task, self.task.value
        found: dict[str, Any] = {
            "bound": task.shown(task.bound.value),
            "bound_by": task.bound.name,
        }
        if value is not None:
            found["value"] = task.shown(value)
            found["gap"] = relative_gap(value, task.bound.value, value)
            found["best_by"] = task.best_by
        return found | task.figures()
